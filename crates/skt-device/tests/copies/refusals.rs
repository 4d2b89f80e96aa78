//! Copiers where there is no driver or no device.

use skt_device::{Copier, DeviceError};

use crate::host_device::NULL;
use crate::skipped::skipped;

#[test]
fn without_a_driver_cuda_is_refused_by_its_librarys_name() {
    // SAFETY: null is the default stream.
    match unsafe { Copier::cuda(NULL) } {
        Err(refused @ DeviceError::Library { .. }) => {
            let text = refused.to_string();
            assert!(text.starts_with("libcuda.so.1 cannot be loaded (libcuda.so.1: "), "{text}");
            assert!(
                text.ends_with(
                    "): install the NVIDIA driver on this node, or run where there is an NVIDIA GPU"
                ),
                "{text}"
            );
            assert_eq!(refused.code(), -1);
        }
        _ => skipped("this machine has NVIDIA's driver"),
    }
}

#[test]
fn without_a_device_hip_is_refused() {
    // SAFETY: null is the default stream.
    match unsafe { Copier::hip(NULL) } {
        Err(refused) => {
            let text = refused.to_string();
            assert!(text.contains("libamdhip64.so."), "{text}");
            assert!(text.contains("run where there is an AMD GPU"), "{text}");
        }
        Ok(_) => skipped("this machine has an AMD GPU"),
    }
}
