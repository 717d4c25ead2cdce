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

use crate::netns::NetNs;

/// Socket options: the layout of a table, and its rules.
const INFO: i32 = 64;
const ENTRIES: i32 = 65;

/// Size of a table name in a request.
const NAME: usize = 32;

/// Size of a table's description: name, valid hooks, first and last rule by hook, number of rules,
/// and their size. All numbers have 4 bytes.
const INFO_SIZE: usize = NAME + 4 + 2 * HOOKS * 4 + 4 + 4;

/// Size of the header of a table's rules: the table name and the size of the rules, padded to 8
/// bytes.
const ENTRIES_HEADER: usize = NAME + 8;

const HOOKS: usize = 5;

/// Built-in chains of the hooks.
const CHAINS: [&str; HOOKS] = ["PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"];

/// Returns the offset in a rule of the target's offset, which is followed by the next rule's
/// offset. Both follow the address fields.
const fn offsets(ip: u8) -> usize {
    // Sizes of `struct ipt_ip` and `struct ip6t_ip6`, plus a 4-byte cache field.
    if ip == 6 { 136 + 4 } else { 84 + 4 }
}

/// Returns the number of rules of each chain in a table, without the last rule, which ends the
/// chain.
///
/// # Errors
///
/// When the namespace cannot be entered, or the kernel has no such table.
pub fn rules(ns: &NetNs, ip: u8, table: &str) -> io::Result<HashMap<String, u32>> {
    let bytes = ns.enter(|| read(ip, table))??;
    Ok(count(&bytes.0, &bytes.1, ip))
}

/// Reads a table's description and its rules.
fn read(ip: u8, table: &str) -> io::Result<(Vec<u8>, Vec<u8>)> {
    let (family, level) = if ip == 6 {
        (AddressFamily::Inet6, nix::libc::IPPROTO_IPV6)
    } else {
        (AddressFamily::Inet, nix::libc::IPPROTO_IP)
    };
    let raw = socket(family, SockType::Raw, SockFlag::SOCK_CLOEXEC, RAW)?;
    let mut name = [0; NAME];
    for (to, from) in name[..NAME - 1].iter_mut().zip(table.bytes()) {
        *to = from;
    }
    let mut info = name.to_vec();
    info.resize(INFO_SIZE, 0);
    get(&raw, level, INFO, &mut info)?;
    let size = &info[INFO_SIZE - 4..];
    let mut entries = name.to_vec();
    entries.extend_from_slice(size);
    let size = word(size, 0).and_then(|size| usize::try_from(size).ok());
    entries.resize(ENTRIES_HEADER + size.unwrap_or(0), 0);
    get(&raw, level, ENTRIES, &mut entries)?;
    Ok((info, entries.split_off(ENTRIES_HEADER)))
}

/// Protocol of the socket, which sends nothing.
const RAW: nix::sys::socket::SockProtocol = nix::sys::socket::SockProtocol::Raw;

/// Reads a socket option. `bytes` contains the request, which the response overwrites.
fn get(socket: &OwnedFd, level: i32, what: i32, bytes: &mut [u8]) -> io::Result<()> {
    let mut length = nix::libc::socklen_t::try_from(bytes.len()).map_err(io::Error::other)?;
    // SAFETY: the kernel writes at most `length` bytes to `bytes`, which may contain any value.
    let got = unsafe {
        nix::libc::getsockopt(
            socket.as_raw_fd(),
            level,
            what,
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

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn short(bytes: &[u8], at: usize) -> Option<usize> {
    let short = u16::from_ne_bytes(*bytes.get(at..)?.first_chunk()?);
    Some(short.into())
}

/// Counts rules. `info` contains the start and the end of the built-in chains.
fn count(info: &[u8], entries: &[u8], ip: u8) -> HashMap<String, u32> {
    let mut counts = HashMap::new();
    let valid = word(info, NAME).unwrap_or(0);
    let mut begins = HashMap::new();
    let mut ends = HashMap::new();
    for (hook, chain) in CHAINS.iter().enumerate() {
        if valid & 1 << hook != 0 {
            let at = |list: usize| word(info, NAME + 4 + 4 * (list * HOOKS + hook));
            if let (Some(begin), Some(end)) = (at(0), at(1)) {
                begins.insert(begin as usize, *chain);
                ends.insert(end as usize, *chain);
            }
        }
    }
    let mut chain: Option<String> = None;
    let mut so_far = 0;
    let mut at = 0;
    while let Some((target, next)) = rule(entries, at, ip) {
        if let Some(begun) = begins.get(&at) {
            chain = Some((*begun).to_owned());
            so_far = 0;
        }
        if ends.contains_key(&at) {
            // The last rule is the policy.
            counts.extend(chain.take().map(|chain| (chain, so_far)));
        } else if let Some(begun) = error(entries, at + target) {
            // A user-defined chain ends before the next chain starts.
            counts.extend(chain.take().map(|chain| (chain, so_far - 1)));
            chain = Some(begun);
            so_far = 0;
        } else {
            so_far += 1;
        }
        at += next;
    }
    counts
}

/// Returns the offsets of a rule's target and of the next rule, relative to the rule.
fn rule(entries: &[u8], at: usize, ip: u8) -> Option<(usize, usize)> {
    let target = short(entries, at + offsets(ip))?;
    let next = short(entries, at + offsets(ip) + 2)?;
    (next >= offsets(ip)).then_some((target, next))
}

/// Returns the name in an error target, which consists of a size, the target's name of 29 bytes, a
/// revision, and the chain's name.
fn error(entries: &[u8], at: usize) -> Option<String> {
    let target = entries.get(at..)?;
    let text = |from: usize| {
        let bytes = target.get(from..)?;
        let end = bytes.iter().position(|each| *each == 0)?;
        std::str::from_utf8(&bytes[..end]).ok()
    };
    (text(2)? == "ERROR").then(|| text(32).map(str::to_owned))?
}
