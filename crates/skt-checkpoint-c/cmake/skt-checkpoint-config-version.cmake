# Before version 1 each second number may change the interface.
set(PACKAGE_VERSION "@VERSION@")
string(REGEX MATCH "^[0-9]+\\.[0-9]+" skt_interface "${PACKAGE_VERSION}")
if(PACKAGE_FIND_VERSION VERSION_LESS_EQUAL PACKAGE_VERSION
    AND "${PACKAGE_FIND_VERSION}." MATCHES "^${skt_interface}\\.")
  set(PACKAGE_VERSION_COMPATIBLE TRUE)
  if(PACKAGE_FIND_VERSION VERSION_EQUAL PACKAGE_VERSION)
    set(PACKAGE_VERSION_EXACT TRUE)
  endif()
endif()
