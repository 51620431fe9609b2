package soak

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"sync"
	"testing"
	"time"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/dynxds/dynxds/internal/retries"
	"github.com/dynxds/dynxds/internal/testca"
	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
)

const (
	// refresh is how often clients read their certificates again.
	refresh = 2 * time.Second
	// overlap is the time between two steps of the authority's replacement. No handshake takes as long.
	overlap = 20 * refresh
	// lifetime is how long certificates are valid. They are renewed when a third of it is over.
	lifetime = 300 * refresh
)

// provider is the certificate provider instance of the clients.
const provider = "mesh"

// backendID and clientID are the SPIFFE IDs of backends and clients.
var backendID, clientID = spiffe("backend"), spiffe("client")

func spiffe(path string) *url.URL {
	return &url.URL{Scheme: "spiffe", Host: "soak.example.com", Path: "/" + path}
}

// certificates are those of a mesh. Clients and relays read theirs from files, one after the other, when they connect and
// the last reading is some time ago. Servers have theirs in memory. No RPC may fail because certificates are renewed, or
// because another authority signs them.
type certificates struct {
	t     testing.TB
	files testca.Files
	// lasts ends with the mesh, and with it the renewals.
	lasts context.Context
	work  sync.WaitGroup

	mu sync.Mutex
	// signs is the authority, and trusted are all that are trusted.
	signs   *testca.CA
	trusted []*testca.CA
	// servers have the configurations since certificates were last renewed, by address.
	servers map[string]*tls.Config
	// replacing says that the authority is being replaced.
	replacing bool
}

func newCertificates(t testing.TB) *certificates {
	lasts, end := context.WithCancel(context.Background())
	c := &certificates{t: t, files: testca.NewFiles(t), lasts: lasts, signs: testca.New(t)}
	c.trusted = []*testca.CA{c.signs}
	c.renew()
	c.work.Go(func() {
		for retries.Wait(lasts, lifetime/3) == nil {
			c.renew()
		}
	})
	t.Cleanup(func() {
		end()
		c.work.Wait()
	})
	return c
}

// renew gives everybody a new certificate, and the authorities that are trusted.
func (c *certificates) renew() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.servers = map[string]*tls.Config{}
	cert, key := c.signs.Sign(c.valid(clientID))
	c.replace(c.files.CA, c.roots())
	c.replace(c.files.Cert, cert)
	c.replace(c.files.Key, key)
}

// roots are the authorities that are trusted. The caller holds mu.
func (c *certificates) roots() (all []byte) {
	for _, ca := range c.trusted {
		all = append(all, ca.PEM()...)
	}
	return all
}

// replace replaces a file at once, as tools that renew certificates do.
func (c *certificates) replace(path string, data []byte) {
	c.files.Write(path+".new", data)
	xdstest.NoError(c.t, os.Rename(path+".new", path))
}

// valid is the template of a certificate.
func (c *certificates) valid(id *url.URL) *x509.Certificate {
	return &x509.Certificate{URIs: []*url.URL{id}, NotBefore: time.Now().Add(-time.Minute), NotAfter: time.Now().Add(lifetime)}
}

// replaceAuthority makes another authority sign all certificates, as one does without an interruption: both are trusted
// first, then the new one signs, and the former is no longer trusted. It reports whether it can.
func (c *certificates) replaceAuthority() bool {
	next := testca.New(c.t)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.replacing {
		return false
	}
	c.replacing = true
	c.work.Go(func() {
		for _, step := range []func(){
			func() { c.trusted = append(c.trusted, next) },
			func() { c.signs = next },
			func() { c.trusted = []*testca.CA{next} },
			func() { c.replacing = false },
		} {
			c.mu.Lock()
			step()
			c.mu.Unlock()
			c.renew()
			if retries.Wait(c.lasts, overlap) != nil {
				return
			}
		}
	})
	return true
}

// server has the credentials of servers, which take mTLS, and plaintext as well.
func (c *certificates) server() credentials.TransportCredentials {
	return permissive{credentials.NewTLS(&tls.Config{
		GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
			return c.serverAt(hello.Conn.LocalAddr().String()), nil
		},
	})}
}

// serverAt is the configuration of the server at an address.
func (c *certificates) serverAt(addr string) *tls.Config {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.servers[addr] == nil {
		host, _, err := net.SplitHostPort(addr)
		xdstest.NoError(c.t, err)
		template := c.valid(backendID)
		// In memory, a client has its own host in front of that of the server.
		template.DNSNames, template.IPAddresses = []string{"*." + host}, []net.IP{net.ParseIP(host)}
		pool := x509.NewCertPool()
		pool.AppendCertsFromPEM(c.roots())
		c.servers[addr] = &tls.Config{
			Certificates: []tls.Certificate{c.signs.Pair(template)}, ClientCAs: pool,
			ClientAuth: tls.RequireAndVerifyClientCert, NextProtos: []string{"h2"},
		}
	}
	return c.servers[addr]
}

// bootstrap is the configuration of the files, for a provider or for credentials of a control plane.
func (c *certificates) bootstrap() map[string]any {
	return map[string]any{
		"ca_certificate_file": c.files.CA, "certificate_file": c.files.Cert, "private_key_file": c.files.Key,
		"refresh_interval": fmt.Sprintf("%gs", refresh.Seconds()),
	}
}

// security is that of the connections to the endpoints of a cluster. A greater one is stricter.
type security int

const (
	plaintext security = iota
	// mutual is mTLS with any server of the authority, and named is mTLS with backends alone.
	mutual
	named
)

func (d draw) security() security { return security(d.IntN(int(named) + 1)) }

// secured reports whether it is TLS.
func (s security) secured() bool { return s != plaintext }

// socket is what a Cluster has for it.
func (s security) socket() *corepb.TransportSocket {
	switch s {
	case mutual:
		return xdsmsg.TLSSocket(xdsmsg.UpstreamTLS(provider, provider))
	case named:
		return xdsmsg.TLSSocket(xdsmsg.UpstreamTLS(provider, provider, backendID.String()))
	default:
		return nil
	}
}

// permissive takes TLS and plaintext, as the first byte of a connection says.
type permissive struct {
	credentials.TransportCredentials
}

// ServerHandshake implements credentials.TransportCredentials.
func (p permissive) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	const handshake = 22 // the type of the first TLS record
	first := make([]byte, 1)
	if _, err := io.ReadFull(raw, first); err != nil {
		return nil, nil, err
	}
	c := &peeked{raw, io.MultiReader(bytes.NewReader(first), raw)}
	if first[0] == handshake {
		return p.TransportCredentials.ServerHandshake(c)
	}
	return insecure.NewCredentials().ServerHandshake(c)
}

// peeked is a connection of which the first byte was read.
type peeked struct {
	net.Conn
	all io.Reader
}

// Read implements net.Conn.
func (c *peeked) Read(b []byte) (int, error) { return c.all.Read(b) }

// certificateOps are the operations on certificates.
var certificateOps = []op{
	{"certificates are renewed", 3, func(r *run) bool {
		r.certificates.renew()
		return true
	}},
	{"the authority of certificates is replaced", 6, func(r *run) bool { return r.certificates.replaceAuthority() }},
	{"a cluster gets mTLS, or none", 6, changeCluster(func(s *clusterSpec, drawn clusterSpec) { s.security = drawn.security })},
}
