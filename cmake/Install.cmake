# What an installation holds, by component: `coordinator`, the coordinator and the command, which need no LibTorch; `worker`.
# Debian packages: one a component (cpack --preset package).
include(GNUInstallDirs)
# Below the prefix, but for the system's own: a package's configuration is in /etc.
set(_config ${CMAKE_INSTALL_SYSCONFDIR}/espalier)
set(ESPALIER_CONFIG_DIR ${CMAKE_INSTALL_PREFIX}/${_config})
if(CMAKE_INSTALL_PREFIX STREQUAL "/usr")
  set(ESPALIER_CONFIG_DIR /etc/espalier)
  set(_config ${ESPALIER_CONFIG_DIR})
endif()

install(TARGETS espalier espalier-coordinator RUNTIME COMPONENT coordinator)
install(TARGETS espalier-worker RUNTIME COMPONENT worker)
if(ESPALIER_WITH_LIBTORCH)
  # LibTorch keeps the wheel's folders, by which its libraries find each other.
  install(TARGETS ${ESPALIER_GROUP_MODULES} LIBRARY DESTINATION lib/espalier COMPONENT worker)
  file(GLOB _folders RELATIVE ${ESPALIER_LIBTORCH} ${ESPALIER_LIBTORCH}/torch/lib ${ESPALIER_LIBTORCH}/nvidia/*/lib)
  foreach(_folder ${_folders})
    list(APPEND _private ${ESPALIER_LIBTORCH}/${_folder})
    list(APPEND _rpath $ORIGIN/${_folder})
    install(DIRECTORY ${ESPALIER_LIBTORCH}/${_folder}/ DESTINATION lib/espalier/${_folder} COMPONENT worker
            FILES_MATCHING PATTERN "*.so*")
  endforeach()
  set_target_properties(${ESPALIER_GROUP_MODULES} PROPERTIES INSTALL_RPATH "${_rpath}")
endif()
if(ESPALIER_CUDA)
  # libcuda.so.1 comes with the driver of the host and belongs to no package; dpkg-shlibdeps wants to find one all the same.
  set(_driver ${CMAKE_BINARY_DIR}/driver)
  file(CONFIGURE OUTPUT ${_driver}/none.cc CONTENT "")
  add_library(espalier_no_driver SHARED ${_driver}/none.cc)
  set_target_properties(espalier_no_driver PROPERTIES OUTPUT_NAME cuda SOVERSION 1 LIBRARY_OUTPUT_DIRECTORY ${_driver})
  add_dependencies(espalier-worker espalier_no_driver)
  list(APPEND _private ${_driver})
endif()

install(FILES client/completions/espalier.bash DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions
        RENAME espalier COMPONENT coordinator)
install(FILES client/completions/_espalier DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/vendor-completions COMPONENT coordinator)
install(DIRECTORY deploy/prometheus deploy/grafana DESTINATION ${CMAKE_INSTALL_DATADIR}/espalier COMPONENT coordinator)
install(DIRECTORY docs/ DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT coordinator)
install(DIRECTORY proto/espalier DESTINATION ${CMAKE_INSTALL_DATADIR}/espalier/proto COMPONENT coordinator)

# systemd's units, with the folder of the programs as it is known here: configure with the prefix that is meant.
foreach(_unit IN ITEMS "espalier-coordinator;espalier-coordinator.service" "espalier-worker;espalier-worker@.service")
  list(POP_FRONT _unit _program)
  string(REPLACE "espalier-" "" _component ${_program})
  configure_file(deploy/systemd/${_unit}.in ${CMAKE_BINARY_DIR}/systemd/${_unit} @ONLY)
  install(FILES ${CMAKE_BINARY_DIR}/systemd/${_unit} DESTINATION lib/systemd/system COMPONENT ${_component})
  install(FILES deploy/systemd/${_component}.toml DESTINATION ${_config} COMPONENT ${_component})
endforeach()

set(CPACK_GENERATOR DEB)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_COMPONENTS_GROUPING IGNORE)
set(CPACK_COMPONENTS_ALL coordinator worker)
set(CPACK_PACKAGE_CONTACT "The Espalier authors")
set(CPACK_PACKAGING_INSTALL_PREFIX ${CMAKE_INSTALL_PREFIX})
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${_private})
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
# Packing 450 MB of LibTorch as small as it goes takes minutes and saves little.
set(CPACK_DEBIAN_COMPRESSION_TYPE zstd)
set(CPACK_COMPONENT_COORDINATOR_DESCRIPTION "Keeps the masks of pruned models true on every shard: coordinator and command
 espalier-coordinator schedules pruning recipes on workers; espalier is the command for people and scripts.")
set(CPACK_COMPONENT_WORKER_DESCRIPTION "Keeps the masks of pruned models true on every shard: worker
 espalier-worker holds the shards of one rank, selects masks, proves them and writes checkpoints. Carries LibTorch.")
set(CPACK_DEBIAN_COORDINATOR_PACKAGE_NAME espalier)
set(CPACK_DEBIAN_COORDINATOR_PACKAGE_DEPENDS adduser)
set(CPACK_DEBIAN_COORDINATOR_PACKAGE_RECOMMENDS espalier-worker)
set(CPACK_DEBIAN_COORDINATOR_PACKAGE_CONTROL_EXTRA
    "${CMAKE_SOURCE_DIR}/deploy/debian/postinst;${CMAKE_SOURCE_DIR}/deploy/debian/coordinator/conffiles")
set(CPACK_DEBIAN_WORKER_PACKAGE_NAME espalier-worker)
if(ESPALIER_CUDA)
  # In the place of the one without GPUs, for whatever asks for that by name.
  set(CPACK_DEBIAN_WORKER_PACKAGE_NAME espalier-worker-cuda)
  set(CPACK_DEBIAN_WORKER_PACKAGE_PROVIDES espalier-worker)
  set(CPACK_DEBIAN_WORKER_PACKAGE_CONFLICTS espalier-worker)
  set(CPACK_DEBIAN_WORKER_PACKAGE_REPLACES espalier-worker)
endif()
set(CPACK_DEBIAN_WORKER_PACKAGE_DEPENDS adduser)
set(CPACK_DEBIAN_WORKER_PACKAGE_CONTROL_EXTRA
    "${CMAKE_SOURCE_DIR}/deploy/debian/postinst;${CMAKE_SOURCE_DIR}/deploy/debian/worker/conffiles")
include(CPack)
