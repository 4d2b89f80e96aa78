//! The addresses of a node in its networks, and which of them the job uses.

use std::ffi::CStr;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ptr;

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Address {
    pub interface: String,
    pub ip: IpAddr,
}

/// A network that the job must use.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Network {
    /// The network of the interface with this name on each node.
    Interface(String),
    /// A subnet: its address and its number of significant bits.
    Subnet(IpAddr, u32),
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Networks(Vec<Network>);

/// A launcher's arguments and environment variables that name networks: Open MPI's for ranks and
/// daemons, Hydra's, and UCX's. Those for ranks come first because they decide.
const NAMES: [&str; 6] = [
    "btl_tcp_if_include",
    "UCX_NET_DEVICES",
    "oob_tcp_if_include",
    "prte_if_include",
    "-iface",
    "--iface",
];

impl Networks {
    /// The networks that the launcher's arguments name, or else its environment (Open MPI's
    /// `OMPI_MCA_` and `PRTE_MCA_`); empty if neither names one.
    pub fn from_arguments(arguments: &[String], env: &dyn Fn(&str) -> Option<String>) -> Self {
        let argument = |name: &str| {
            let next = arguments.iter().position(|word| word == name).map(|at| at + 1);
            let joined =
                |word: &String| Some(word.split_once(name)?.1.strip_prefix('=')?.to_owned());
            let next = next.and_then(|at| arguments.get(at).cloned());
            next.or_else(|| arguments.iter().find_map(joined))
        };
        let variable = |name: &str| {
            ["OMPI_MCA_", "PRTE_MCA_", ""].iter().find_map(|before| env(&format!("{before}{name}")))
        };
        let list = NAMES.into_iter().find_map(argument);
        let list = list.or_else(|| NAMES.into_iter().find_map(variable)).unwrap_or_default();
        Self(list.split(',').filter(|word| !word.is_empty()).map(Network::read).collect())
    }

    /// The addresses in these networks, at most one per network.
    pub(crate) fn choose(&self, addresses: &[Address]) -> Vec<IpAddr> {
        let of = |network: &Network| addresses.iter().find(|address| network.has(address));
        let mut chosen: Vec<IpAddr> = self.0.iter().filter_map(of).map(|found| found.ip).collect();
        chosen.dedup();
        chosen
    }
}

impl Network {
    /// Reads an interface's name, with or without UCX's port after a colon, or a subnet.
    fn read(word: &str) -> Self {
        let subnet = word
            .split_once('/')
            .and_then(|(ip, bits)| Some(Network::Subnet(ip.parse().ok()?, bits.parse().ok()?)));
        let interface = word.split(':').next().unwrap_or(word);
        subnet.unwrap_or_else(|| Network::Interface(interface.to_owned()))
    }

    fn has(&self, address: &Address) -> bool {
        let same = |a: u128, b: u128, length: u32, bits: u32| {
            let rest = length.saturating_sub(bits);
            a.checked_shr(rest).unwrap_or(0) == b.checked_shr(rest).unwrap_or(0)
        };
        match (self, address.ip) {
            (Network::Interface(name), _) => *name == address.interface,
            (Network::Subnet(IpAddr::V4(net), bits), IpAddr::V4(ip)) => {
                same(net.to_bits().into(), ip.to_bits().into(), 32, *bits)
            }
            (Network::Subnet(IpAddr::V6(net), bits), IpAddr::V6(ip)) => {
                same(net.to_bits(), ip.to_bits(), 128, *bits)
            }
            _ => false,
        }
    }
}

/// The addresses of this machine, except loopback and link-local ones (IPv6 `fe80::`). Addresses of
/// interfaces that are down are included: the job would use them.
pub(crate) fn list_local() -> Vec<Address> {
    let mut list: *mut libc::ifaddrs = ptr::null_mut();
    // SAFETY: the function writes one pointer through its argument.
    if unsafe { libc::getifaddrs(&raw mut list) } != 0 {
        return Vec::new();
    }
    let mut all = Vec::new();
    let mut next = list;
    // SAFETY: `next` is null or an entry of the list, which lives until it is freed below.
    while let Some(entry) = unsafe { next.as_ref() } {
        next = entry.ifa_next;
        // SAFETY: the name of an entry is a string that ends with 0.
        let interface = unsafe { CStr::from_ptr(entry.ifa_name) }.to_string_lossy().into_owned();
        // SAFETY: an entry's address is null or a socket address of the family that it names.
        let ip = unsafe { ip_of(entry.ifa_addr) };
        let is_local = |ip: &IpAddr| match ip {
            IpAddr::V4(ip) => ip.is_loopback(),
            IpAddr::V6(ip) => ip.is_loopback() || ip.is_unicast_link_local(),
        };
        all.extend(ip.filter(|ip| !is_local(ip)).map(|ip| Address { interface, ip }));
    }
    // SAFETY: the list was made by `getifaddrs`, and no part of it is used any more.
    unsafe { libc::freeifaddrs(list) };
    all
}

/// The IP address in a socket address; `None` for other families.
///
/// # Safety
/// `address` is null, or points to a socket address of the family that its first field names.
unsafe fn ip_of(address: *const libc::sockaddr) -> Option<IpAddr> {
    // SAFETY: the caller's promise; each family's type begins with the same field.
    unsafe {
        match i32::from(address.as_ref()?.sa_family) {
            libc::AF_INET => {
                let of_4 = address.cast::<libc::sockaddr_in>().read_unaligned();
                Some(Ipv4Addr::from(u32::from_be(of_4.sin_addr.s_addr)).into())
            }
            libc::AF_INET6 => {
                let of_6 = address.cast::<libc::sockaddr_in6>().read_unaligned();
                Some(Ipv6Addr::from(of_6.sin6_addr.s6_addr).into())
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(interface: &str, ip: &str) -> Address {
        Address { interface: interface.into(), ip: ip.parse().unwrap() }
    }

    fn chosen(arguments: &str, variable: Option<(&str, &str)>) -> Vec<String> {
        let all = [
            address("eth0", "192.168.1.5"),
            address("ib0", "10.77.0.12"),
            address("ib1", "10.78.0.12"),
            address("ib0", "fd00::12"),
        ];
        let arguments: Vec<String> = arguments.split_whitespace().map(str::to_owned).collect();
        let env = |name: &str| {
            variable.filter(|(known, _)| *known == name).map(|(_, value)| value.to_owned())
        };
        Networks::from_arguments(&arguments, &env)
            .choose(&all)
            .iter()
            .map(ToString::to_string)
            .collect()
    }

    #[test]
    fn the_launchers_networks_are_those_of_the_job() {
        assert_eq!(chosen("--bind-to none", None), [""; 0]);
        let both = "--mca oob_tcp_if_include eth0 --mca btl_tcp_if_include 10.77.0.0/24";
        assert_eq!(chosen(both, None), ["10.77.0.12"], "the ranks' network counts");
        let two = "--mca btl_tcp_if_include ib0,ib1";
        assert_eq!(chosen(two, None), ["10.77.0.12", "10.78.0.12"]);
        assert_eq!(chosen("--mca btl_tcp_if_include fd00::/64", None), ["fd00::12"]);
        assert_eq!(chosen("--mca btl_tcp_if_include 0.0.0.0/0", None), ["192.168.1.5"]);
        assert_eq!(chosen("-iface ib1", None), ["10.78.0.12"]);
        assert_eq!(chosen("-genv UCX_NET_DEVICES ib1", None), ["10.78.0.12"]);
        assert_eq!(chosen("-x UCX_NET_DEVICES=ib0:1", None), ["10.77.0.12"]);
        assert_eq!(chosen("-x UCX_NET_DEVICES=mlx5_0:1", None), [""; 0], "no interface of IP");
        let of_environment = Some(("OMPI_MCA_btl_tcp_if_include", "ib1"));
        assert_eq!(chosen("", of_environment), ["10.78.0.12"]);
        assert_eq!(chosen("-iface ib0", of_environment), ["10.77.0.12"], "arguments win");
    }

    #[test]
    fn this_machine_has_no_loopback_among_its_addresses() {
        let all = list_local();
        assert!(all.iter().all(|address| !address.ip.is_loopback()), "{all:?}");
    }
}
