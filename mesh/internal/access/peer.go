package access

import (
	"crypto/x509"
	"fmt"
	"net"
	"net/netip"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
)

// Peer returns which clients count as one for limits: those with the same verified certificate identity and the same
// host. So neither the many connections of one machine count as many peers, nor all machines behind one
// address, or all instances of one workload, as one. p may be nil.
//
// The identity is the first URI of the client's certificate, or else its first DNS name, and empty if no
// certificate was verified. The host is the IP address, of IPv6 the first 64 bits, as one machine has all
// addresses of these. On a Unix domain socket each connection is a peer.
func Peer(p *peer.Peer) string {
	if p == nil {
		return ""
	}
	return identity(p) + " " + host(p.Addr)
}

func identity(p *peer.Peer) string {
	switch cert := verified(p); {
	case cert == nil:
	case len(cert.URIs) > 0:
		return cert.URIs[0].String()
	case len(cert.DNSNames) > 0:
		return cert.DNSNames[0]
	}
	return ""
}

// verified returns the verified certificate of a client, or nil. p may be nil.
func verified(p *peer.Peer) *x509.Certificate {
	if p == nil {
		return nil
	}
	info, ok := p.AuthInfo.(credentials.TLSInfo)
	if !ok || len(info.State.VerifiedChains) == 0 {
		return nil
	}
	return info.State.VerifiedChains[0][0]
}

func host(addr net.Addr) string {
	switch addr := addr.(type) {
	case nil:
		return ""
	case *net.UnixAddr:
		return fmt.Sprintf("%p", addr) // all clients have the same name, and each connection an address of its own
	}
	at, err := netip.ParseAddrPort(addr.String())
	if err != nil {
		return addr.String()
	}
	ip := at.Addr().Unmap()
	if !ip.Is6() {
		return ip.String()
	}
	network, _ := ip.WithZone("").Prefix(64)
	return network.String()
}
