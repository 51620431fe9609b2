package dnsconfig

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"time"

	"google.golang.org/grpc/resolver"
)

// hostOf returns the host of an endpoint, which may have a port.
func hostOf(endpoint string) string {
	if host, _, err := net.SplitHostPort(endpoint); err == nil {
		return host
	}
	return strings.TrimSuffix(strings.TrimPrefix(endpoint, "["), "]")
}

// hasConfig reports whether DNS may have a service config for a host. IP literals and localhost
// have none (gRFC A10).
func hasConfig(host string) bool {
	if host == "" || strings.EqualFold(strings.TrimSuffix(host, "."), "localhost") {
		return false
	}
	_, err := netip.ParseAddr(host)
	return err != nil
}

// enabled reports whether the environment permits look-ups, as in gRPC-Go's "dns" resolver.
func enabled() bool { return !strings.EqualFold(os.Getenv("GRPC_ENABLE_TXT_SERVICE_CONFIG"), "false") }

// dnsTarget returns the target for gRPC's "dns" resolver.
func dnsTarget(target resolver.Target) resolver.Target {
	target.URL.Scheme = "dns"
	return target
}

// dnsPort is the default port of DNS servers.
const dnsPort = "53"

// newLookup returns the function that looks up TXT records, at the DNS server that the target's
// authority names or else at the system's.
func newLookup(authority string) (lookupFunc, error) {
	if authority == "" {
		return func(ctx context.Context, name string) ([]string, error) {
			return newNetResolver(net.DefaultResolver.PreferGo, net.DefaultResolver.Dial).LookupTXT(ctx, name)
		}, nil
	}
	server, err := serverAddress(authority)
	if err != nil {
		return nil, err
	}
	r := newNetResolver(true, func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, server)
	})
	return func(ctx context.Context, name string) ([]string, error) {
		records, err := r.LookupTXT(ctx, name)
		if failed, ok := errors.AsType[*net.DNSError](err); ok {
			failed.Server = server // not the system's, which was not asked
		}
		return records, err
	}, nil
}

type dialFunc = func(ctx context.Context, network, address string) (net.Conn, error)

// newNetResolver returns a resolver whose errors distinguish missing names from failures. By
// default, a name of the search list that does not exist hides the failure of the one before. dial may be nil, as in net.Resolver.
func newNetResolver(preferGo bool, dial dialFunc) *net.Resolver {
	if dial == nil {
		dial = new(net.Dialer).DialContext
	}
	return &net.Resolver{PreferGo: preferGo, StrictErrors: true, Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		// net.Resolver does not stop waiting for an answer when the context ends.
		context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
		return conn, nil
	}}
}

func serverAddress(authority string) (string, error) {
	host, port, err := net.SplitHostPort(authority)
	if err != nil {
		host, port = strings.TrimSuffix(strings.TrimPrefix(authority, "["), "]"), dnsPort
		if _, err := netip.ParseAddr(host); err != nil && strings.Contains(host, ":") {
			return "", fmt.Errorf("the authority %q is not the address of a DNS server", authority)
		}
	}
	if port == "" {
		return "", fmt.Errorf("the authority %q, the address of a DNS server, ends with a colon", authority)
	}
	return net.JoinHostPort(cmp.Or(host, "localhost"), port), nil
}
