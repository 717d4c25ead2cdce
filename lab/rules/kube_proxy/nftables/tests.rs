//! Nftables mode, by version and configuration.
