#!/bin/sh
# The lab topologies/bench/six-namespaces.yaml as a hand-written script: `ip`
# for links and routes, `iptables-restore` for the rules, `nc` for the
# connection.
#
#   six-namespaces.sh up nft|legacy RULES    build the lab, connect, check the answer
#   six-namespaces.sh rule nft|legacy -A|-D  add or delete a rule on node-1, delete
#                                            all conntrack entries, connect again
#   six-namespaces.sh set                    create a set on node-1
#   six-namespaces.sh entry add|del          as `rule`, with an entry of that set
#   six-namespaces.sh down                   remove the lab
#
# RULES is a directory with the input of iptables-restore for node-1 and node-2,
# in files of those names. Needs root. The script omits some work of svclab:
# static neighbours, sysctls that have the required value by default, and the
# check of the result.
set -eu

spaces="fabric node-1 node-2 laptop client web"

# cable NAMESPACE INTERFACE ADDRESS NAMESPACE INTERFACE [ADDRESS]
cable() {
    ip -n "$1" link add "$2" type veth peer name "$5" netns "$4"
    [ -z "$3" ] || ip -n "$1" addr add "$3" dev "$2"
    [ -z "${6-}" ] || ip -n "$4" addr add "$6" dev "$5"
    ip -n "$1" link set "$2" up
    ip -n "$4" link set "$5" up
}

# node NAMESPACE POD POD-ADDRESS BRIDGE-ADDRESS ROUTER RULES
node() {
    ip -n "$1" route add default via "$5"
    ip -n "$1" link add cbr0 type bridge
    ip -n "$1" addr add "$4/24" dev cbr0
    ip -n "$1" link set cbr0 up
    cable "$2" eth0 "$3/24" "$1" "veth-$2"
    ip -n "$1" link set "veth-$2" master cbr0
    ip -n "$1" link set "veth-$2" type bridge_slave hairpin on
    ip -n "$2" route add default via "$4"
    ip netns exec "$1" sysctl -q -w net.ipv4.ip_forward=1 \
        net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.default.rp_filter=0 \
        net.bridge.bridge-nf-call-iptables=1
    ip netns exec "$1" "iptables-$backend-restore" <"$6"
}

up() {
    for space in $spaces; do
        ip netns add "$space"
        ip -n "$space" link set lo up
    done
    listen

    ip netns exec fabric sysctl -q -w net.ipv4.ip_forward=1 \
        net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.default.rp_filter=0
    cable node-1 eth0 192.168.1.11/24 fabric node-1 192.168.1.1/24
    cable node-2 eth0 192.168.2.12/24 fabric node-2 192.168.2.1/24
    cable laptop eth0 203.0.113.9/24 fabric laptop 203.0.113.1/24
    ip -n laptop route add default via 203.0.113.1
    ip -n fabric route add 10.244.1.0/24 via 192.168.1.11
    ip -n fabric route add 10.244.2.0/24 via 192.168.2.12
    node node-1 client 10.244.1.9 10.244.1.1 192.168.1.1 "$rules/node-1"
    node node-2 web 10.244.2.10 10.244.2.1 192.168.2.1 "$rules/node-2"

    call
}

# Starts the server, long before the client connects.
listen() {
    echo web | ip netns exec web nc -l -N 8080 >/dev/null &
    server=$!
    trap 'kill "$server" 2>/dev/null || :' EXIT
}

call() {
    answer=$(ip netns exec client nc -N -w 10 10.96.0.10 80 </dev/null) || answer=
    wait
    [ "$answer" = web ] || {
        echo "expected an answer from web, got '$answer'" >&2
        exit 1
    }
}

forget() {
    for space in $spaces; do
        ip netns exec "$space" conntrack -F 2>/dev/null
    done
}

down() {
    for space in $spaces; do
        ip netns del "$space"
    done
}

case ${1-} in
up)
    backend=$2 rules=$3
    up
    ;;
rule)
    listen
    ip netns exec node-1 "iptables-$2" -t nat "$3" POSTROUTING -d 198.51.100.7 -j RETURN
    forget
    call
    ;;
set) ip netns exec node-1 ipset create TRIED hash:ip family inet ;;
entry)
    listen
    ip netns exec node-1 ipset "$2" TRIED 198.51.100.7
    forget
    call
    ;;
down) down ;;
*)
    sed -n '2,/^set/s/^# \{0,1\}//p' "$0" >&2
    exit 2
    ;;
esac
