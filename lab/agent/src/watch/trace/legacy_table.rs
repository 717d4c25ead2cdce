//! Counts the rules of the chains in a legacy table.
//!
//! For a rule that accepts, drops or returns without a condition, the kernel logs the same text as
//! for the end of the chain. Only the rule number distinguishes them. The data is `struct
//! ipt_get_entries` (Linux v6.12, `include/uapi/linux/netfilter_ipv4/ip_tables.h`; IPv6 is
//! analogous). It contains the rules in sequence. A user-defined chain starts with a rule whose
//! target is an error with the chain's name.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};

use crate::net::netns::NetNs;

/// Socket options: the layout of a table, and its rules.
const GET_INFO: i32 = 64;
const GET_ENTRIES: i32 = 65;

/// Size of a table name in a request.
const NAME_BYTES: usize = 32;

/// Size of a table's description: name, valid hooks, first and last rule by hook, number of rules,
/// and their size. All numbers have 4 bytes.
const INFO_SIZE: usize = NAME_BYTES + 4 + 2 * HOOKS * 4 + 4 + 4;

/// Size of the header of a table's rules: the table name and the size of the rules, padded to 8
/// bytes.
const ENTRIES_HEADER: usize = NAME_BYTES + 8;

const HOOKS: usize = 5;

/// Built-in chains of the hooks.
const CHAINS: [&str; HOOKS] = ["PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"];

/// Returns the offset in a rule of the target's offset, which is followed by the next rule's
/// offset. Both follow the address fields.
const fn target_field_offset(ip: u8) -> usize {
    // Sizes of `struct ipt_ip` and `struct ip6t_ip6`, plus a 4-byte cache field.
    if ip == 6 { 136 + 4 } else { 84 + 4 }
}

/// Returns the number of rules of each chain in a table, without the last rule, which ends the
/// chain.
///
/// # Errors
///
/// When the namespace cannot be entered, or the kernel has no such table.
pub(super) fn count_rules(ns: &NetNs, ip: u8, table: &str) -> io::Result<HashMap<String, u32>> {
    let bytes = ns.enter(|| read_table(ip, table))??;
    Ok(count_entries(&bytes.0, &bytes.1, ip))
}

/// Reads a table's description and its rules.
fn read_table(ip: u8, table: &str) -> io::Result<(Vec<u8>, Vec<u8>)> {
    let (family, level) = if ip == 6 {
        (AddressFamily::Inet6, nix::libc::IPPROTO_IPV6)
    } else {
        (AddressFamily::Inet, nix::libc::IPPROTO_IP)
    };
    let raw = socket(family, SockType::Raw, SockFlag::SOCK_CLOEXEC, RAW_PROTOCOL)?;
    let mut name = [0; NAME_BYTES];
    for (to, from) in name[..NAME_BYTES - 1].iter_mut().zip(table.bytes()) {
        *to = from;
    }
    let mut info = name.to_vec();
    info.resize(INFO_SIZE, 0);
    read_option(&raw, level, GET_INFO, &mut info)?;
    let size = &info[INFO_SIZE - 4..];
    let mut entries = name.to_vec();
    entries.extend_from_slice(size);
    let size = read_u32(size, 0).and_then(|size| usize::try_from(size).ok());
    entries.resize(ENTRIES_HEADER + size.unwrap_or(0), 0);
    read_option(&raw, level, GET_ENTRIES, &mut entries)?;
    Ok((info, entries.split_off(ENTRIES_HEADER)))
}

/// Protocol of the socket, which sends nothing.
const RAW_PROTOCOL: nix::sys::socket::SockProtocol = nix::sys::socket::SockProtocol::Raw;

/// Reads a socket option. `bytes` contains the request, which the response overwrites.
fn read_option(socket: &OwnedFd, level: i32, option: i32, bytes: &mut [u8]) -> io::Result<()> {
    let mut length = nix::libc::socklen_t::try_from(bytes.len()).map_err(io::Error::other)?;
    // SAFETY: the kernel writes at most `length` bytes to `bytes`, which may contain any value.
    let got = unsafe {
        nix::libc::getsockopt(
            socket.as_raw_fd(),
            level,
            option,
            bytes.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    if got == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

fn read_u32(bytes: &[u8], offset: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*bytes.get(offset..)?.first_chunk()?))
}

fn read_u16(bytes: &[u8], offset: usize) -> Option<usize> {
    let short = u16::from_ne_bytes(*bytes.get(offset..)?.first_chunk()?);
    Some(short.into())
}

/// Counts rules. `info` contains the start and the end of the built-in chains.
fn count_entries(info: &[u8], entries: &[u8], ip: u8) -> HashMap<String, u32> {
    let mut counts = HashMap::new();
    let valid = read_u32(info, NAME_BYTES).unwrap_or(0);
    let mut begins = HashMap::new();
    let mut ends = HashMap::new();
    for (hook, chain) in CHAINS.iter().enumerate() {
        if valid & 1 << hook != 0 {
            let at = |list: usize| read_u32(info, NAME_BYTES + 4 + 4 * (list * HOOKS + hook));
            if let (Some(begin), Some(end)) = (at(0), at(1)) {
                begins.insert(begin as usize, *chain);
                ends.insert(end as usize, *chain);
            }
        }
    }
    let mut chain: Option<String> = None;
    let mut so_far = 0;
    let mut offset = 0;
    while let Some((target, next)) = rule_offsets(entries, offset, ip) {
        if let Some(chain_name) = begins.get(&offset) {
            chain = Some((*chain_name).to_owned());
            so_far = 0;
        }
        if ends.contains_key(&offset) {
            // The last rule is the policy.
            counts.extend(chain.take().map(|chain| (chain, so_far)));
        } else if let Some(chain_name) = error_target_name(entries, offset + target) {
            // A user-defined chain ends before the next chain starts.
            counts.extend(chain.take().map(|chain| (chain, so_far - 1)));
            chain = Some(chain_name);
            so_far = 0;
        } else {
            so_far += 1;
        }
        offset += next;
    }
    counts
}

/// Returns the offsets of a rule's target and of the next rule, relative to the rule.
fn rule_offsets(entries: &[u8], offset: usize, ip: u8) -> Option<(usize, usize)> {
    let target = read_u16(entries, offset + target_field_offset(ip))?;
    let next = read_u16(entries, offset + target_field_offset(ip) + 2)?;
    (next >= target_field_offset(ip)).then_some((target, next))
}

/// Returns the name in an error target, which consists of a size, the target's name of 29 bytes, a
/// revision, and the chain's name.
fn error_target_name(entries: &[u8], offset: usize) -> Option<String> {
    let target = entries.get(offset..)?;
    let text = |start: usize| {
        let bytes = target.get(start..)?;
        let end = bytes.iter().position(|each| *each == 0)?;
        std::str::from_utf8(&bytes[..end]).ok()
    };
    (text(2)? == "ERROR").then(|| text(32).map(str::to_owned))?
}
