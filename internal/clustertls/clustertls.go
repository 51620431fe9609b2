//lint:file-ignore SA1019 What implements the interfaces of package credentials.

// Package clustertls makes the credentials with which connections to the endpoints of one
// cluster are secured, from the security settings of the Cluster (gRFC A29). Before
// its own handshake the same credentials have HTTP proxies connect to endpoints (gRFC A86).
//
// Certificates and roots come from the certificate providers of the bootstrap, and are asked for
// in each handshake: what rotates is used by new connections, and keeps the old ones. Nothing
// here falls back to plaintext, or to a connection without the proxy: where something is
// missing, the handshake fails with an error that names it.
//
// The package does not open connections and does not know which channels obey the Cluster.
package clustertls

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/resolver"

	"github.com/dynxds/dynxds/internal/boundlog"
	"github.com/dynxds/dynxds/internal/faults"
	"github.com/dynxds/dynxds/internal/peercert"
	"github.com/dynxds/dynxds/internal/refpool"
	"github.com/dynxds/dynxds/internal/xdsresource"
)

var logger = boundlog.Component("dynxds-tls")

// Pool shares the Bundles of one balancer tree. It is safe for concurrent use.
type Pool struct {
	obeys    bool
	channel  credentials.TransportCredentials
	perRPC   credentials.PerRPCCredentials
	bundles  refpool.Pool[key, *Bundle]
	warnOnce sync.Once
}

// Key is equal for Clusters whose connections are made in the same way, and zero if they are
// made as those of any channel.
type Key struct {
	secure   bool // the connections have credentials other than the channel's
	security xdsresource.SecurityKey
	connect  bool
}

// key is equal for clusters of the same name whose connections are made in the same way.
type key struct {
	cluster string
	way     Key
}

// NewPool returns an empty Pool for a channel with the given credentials, either of which may
// be nil, and whether that obeys the control plane. The call credentials of the channel's
// Bundle stay in use.
func NewPool(obeys bool, channel credentials.TransportCredentials, bundle credentials.Bundle) *Pool {
	p := &Pool{obeys: obeys, channel: channel}
	if bundle != nil {
		p.perRPC = bundle.PerRPCCredentials()
		if creds := bundle.TransportCredentials(); creds != nil {
			p.channel = creds
		}
	}
	return p
}

// Key returns how the connections of a Cluster are made on the channel: as those of any channel
// if the Pool is nil. The first Security that the channel ignores (gRFC A29) is logged. HTTP
// CONNECT is obeyed whatever the credentials (gRFC A86, "Proposal").
func (p *Pool) Key(cluster string, c *xdsresource.Cluster) Key {
	if p == nil {
		return Key{}
	}
	k := Key{connect: c.HTTPConnect}
	switch {
	case c.Security == nil:
	case p.obeys:
		k.secure, k.security = true, c.Security.Key()
	default:
		p.warnOnce.Do(func() {
			logger.Warningf("cluster %s asks for TLS, and the channel ignores that: it uses its own credentials, which are not of "+
				"google.golang.org/grpc/credentials/xds; dial with credentials of that package to have connections secured as the control plane says (logged once for each channel)",
				faults.Quote(cluster))
		})
	}
	return k
}

// Stricter reports whether connections that were made as a Cluster asked before may be less secure than it
// asks for now, on a channel that obeys it.
func (p *Pool) Stricter(before, now *xdsresource.Security) bool {
	return p != nil && p.obeys && !now.SatisfiedBy(before)
}

// Acquire returns the Bundle for a cluster: the same one as long as it is held, so that
// connections made in the same way have the same Bundle. If it cannot be made, its handshakes fail. The
// certificate providers are closed after the last release. The Bundle is nil if the channel's own
// credentials make the connections and always will: if the channel does not obey the Cluster, and that asks
// for no proxies.
func (p *Pool) Acquire(cluster string, c *xdsresource.Cluster) (b *Bundle, release func()) {
	k := key{cluster, p.Key(cluster, c)}
	if k.way == (Key{}) && (p == nil || !p.obeys) {
		return nil, func() {}
	}
	var s *xdsresource.Security
	if k.way.secure {
		s = c.Security
	}
	b, release = p.acquire(k, s)
	b.outdated.Store(false)
	return b, release
}

func (p *Pool) acquire(k key, s *xdsresource.Security) (b *Bundle, release func()) {
	b, release, _ = p.bundles.Acquire(k, func() (*Bundle, func(), error) {
		b := &Bundle{pool: p, key: k, security: s}
		b.ended, b.end = context.WithCancel(context.Background())
		if s != nil {
			b.identity, b.roots = newSource(s.Identity, false), newSource(s.Roots, true)
		}
		return b, b.close, nil
	})
	return b, release
}

// Bundle is the credentials of the connections to one cluster: a credentials.Bundle, and the credentials.TransportCredentials in it.
type Bundle struct {
	pool *Pool
	key  key
	// security is nil if the connections have the channel's credentials.
	security *xdsresource.Security
	// identity is nil if the client has no certificate, and roots is if those of the system
	// are used.
	identity, roots *source
	// outdated says that the connections end with the Bundle. gRPC leaves one open as long as it has streams, which may be for ever,
	// although the SubConn has been shut down. ended is done once they have to end.
	outdated atomic.Bool
	ended    context.Context
	end      context.CancelFunc
}

// close is called when no SubConn has the Bundle any more.
func (b *Bundle) close() {
	if b.outdated.Load() {
		b.end()
	}
	go b.identity.close()
	go b.roots.close()
}

// Outdate has the connections of the Bundle end when it is released for the last time, with all of their streams, unless
// it is acquired again before. Otherwise streams that are open stay. The Bundle may be nil.
func (b *Bundle) Outdate() {
	if b != nil {
		b.outdated.Store(true)
	}
}

// Hold keeps the Bundle usable until release, for a connection that may outlive what acquired it.
func (b *Bundle) Hold() (release func()) {
	_, release = b.pool.acquire(b.key, b.security)
	return release
}

// TransportCredentials implements credentials.Bundle.
func (b *Bundle) TransportCredentials() credentials.TransportCredentials { return b }

// PerRPCCredentials implements credentials.Bundle.
func (b *Bundle) PerRPCCredentials() credentials.PerRPCCredentials { return b.pool.perRPC }

// NewWithMode implements credentials.Bundle.
func (b *Bundle) NewWithMode(string) (credentials.Bundle, error) {
	return nil, errors.New("dynxds: credentials of a cluster have no modes")
}

// Info implements credentials.TransportCredentials.
func (b *Bundle) Info() credentials.ProtocolInfo {
	if b.security == nil {
		return b.pool.channel.Info()
	}
	return credentials.ProtocolInfo{SecurityProtocol: "tls"}
}

// Clone implements credentials.TransportCredentials.
func (b *Bundle) Clone() credentials.TransportCredentials { return b }

// OverrideServerName implements credentials.TransportCredentials.
func (*Bundle) OverrideServerName(string) error {
	return errors.New("dynxds: the control plane decides which names a server certificate must have (match_subject_alt_names)")
}

// ServerHandshake implements credentials.TransportCredentials.
func (*Bundle) ServerHandshake(net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, errors.New("dynxds: credentials of a cluster are for clients only")
}

// ClientHandshake connects to the endpoint through its proxy, if it has one, and then does the
// handshake with the endpoint. In that it ignores the authority, unless it is the channel's: the
// certificate has to fit the SAN matchers instead (gRFC A29, "Server Authorization").
func (b *Bundle) ClientHandshake(ctx context.Context, authority string, conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return b.clientHandshake(ctx, endpointIn(credentials.ClientHandshakeInfoFromContext(ctx).Attributes), authority, conn)
}

func (b *Bundle) clientHandshake(ctx context.Context, to endpoint, authority string, conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	if to.proxy != "" {
		if err := to.open(ctx, conn); err != nil {
			conn.Close()
			return nil, nil, fmt.Errorf("cluster %s: %w", faults.Quote(b.key.cluster), err)
		}
	}
	var info credentials.AuthInfo
	c := &connection{bundle: b}
	c.Explain = c.explain
	var err error
	if b.security == nil {
		if c.Conn.Conn, info, err = b.pool.channel.ClientHandshake(ctx, authority, conn); err != nil {
			return nil, nil, err
		}
	} else if c.Conn.Conn, info, err = b.handshake(ctx, conn, &c.sent); err != nil {
		conn.Close()
		return nil, nil, fmt.Errorf("TLS of cluster %s: %w", faults.Quote(b.key.cluster), peercert.Bounded(err))
	}
	if b.ended.Err() != nil {
		conn.Close()
		return nil, nil, fmt.Errorf("cluster %s: the Cluster asks for stricter security by now", faults.Quote(b.key.cluster))
	}
	c.leave = context.AfterFunc(b.ended, func() { conn.Close() }) // fails reads and writes; gRPC then calls Close
	return c, info, nil
}

// handshake sets sent to the client's certificate if the server asks for it.
func (b *Bundle) handshake(ctx context.Context, conn net.Conn, sent **tls.Certificate) (net.Conn, credentials.AuthInfo, error) {
	config, err := b.config(ctx, sent)
	if err != nil {
		return nil, nil, err
	}
	secured, info, err := credentials.NewTLS(config).ClientHandshake(ctx, config.ServerName, conn)
	if err == nil {
		return secured, info, nil
	}
	b.roots.doubt()
	b.identity.doubt()
	var notTLS tls.RecordHeaderError
	switch {
	case errors.As(err, &notTLS):
		return nil, nil, fmt.Errorf("the server does not speak TLS (%w); it may be in plaintext", err)
	case ctx.Err() != nil: // The handshake may still be under way, and set sent.
		return nil, nil, fmt.Errorf("the server did not answer in time: %w", err)
	}
	if invalid := b.identity.invalid(*sent); invalid != "" {
		err = fmt.Errorf("%w; the client has the certificate of %s%s", err, b.identity, invalid)
	}
	return nil, nil, err
}

// config makes the configuration of one handshake, which sets sent.
func (b *Bundle) config(ctx context.Context, sent **tls.Certificate) (*tls.Config, error) {
	sni, address := b.serverName(ctx)
	required := peercert.Requirements{SANs: b.security.SANs, MaxDepth: b.security.MaxDepth}
	if b.security.AutoSNISANValidation {
		switch {
		case sni != "":
			required.ServerName = sni
		case len(required.SANs) > 0:
		case address != "":
			required.ServerName = address
		default:
			return nil, errNoName
		}
	}
	if b.roots != nil {
		m, err := b.roots.material(ctx)
		if err != nil {
			return nil, err
		}
		required.Roots, required.Bundles = m.Roots, m.SPIFFEBundleMap
	}
	config := &tls.Config{
		ServerName: sni,
		// The standard library would verify the host name; VerifyConnection does not.
		InsecureSkipVerify: true,
		VerifyConnection:   func(s tls.ConnectionState) error { return required.Verify(s.PeerCertificates) },
	}
	if b.identity != nil {
		m, err := b.identity.material(ctx)
		if err != nil {
			return nil, err
		}
		config.GetClientCertificate = func(request *tls.CertificateRequestInfo) (*tls.Certificate, error) {
			*sent = choose(m.Certs, request)
			return *sent, nil
		}
	}
	return config, nil
}

// choose returns a certificate whenever the server asks for one (gRFC A29, "CDS for Client Side
// Security"), also if the server does not list its issuer.
func choose(certificates []tls.Certificate, request *tls.CertificateRequestInfo) *tls.Certificate {
	for i := range certificates {
		if request.SupportsCertificate(&certificates[i]) == nil {
			return &certificates[i]
		}
	}
	return &certificates[0]
}

// errNoName is for servers whose certificate would not be compared with anything: the Cluster asks for
// the server's name in the certificate, and there is none.
var errNoName = errors.New("the Cluster has auto_sni_san_validation, and there is neither a server name nor a SAN matcher, so that any certificate of the " +
	"trusted roots would do; the control plane has to set sni, auto_host_sni with a hostname of the endpoint, or match_typed_subject_alt_names")

// serverName returns the name of the server (gRFC A101, "Setting SNI during Tls handshake"): sni is
// sent, and empty if there is none. An IP address cannot be sent (RFC 6066); the first one is returned
// if no other name is known.
func (b *Bundle) serverName(ctx context.Context) (sni, address string) {
	names := []string{b.security.SNI}
	if b.security.AutoHostSNI {
		names = []string{endpointIn(credentials.ClientHandshakeInfoFromContext(ctx).Attributes).hostname, b.security.SNI}
	}
	for _, name := range names {
		name, isAddress := hostOf(name)
		switch {
		case name != "" && !isAddress:
			return name, ""
		case address == "":
			address = name
		}
	}
	return "", address
}

// hostOf returns a name without its port, and whether it is an IP address, which may be in brackets.
func hostOf(name string) (host string, isAddress bool) {
	if h, _, err := net.SplitHostPort(name); err == nil {
		name = h
	}
	bare := strings.TrimSuffix(strings.TrimPrefix(name, "["), "]")
	if _, err := netip.ParseAddr(bare); err == nil {
		return bare, true
	}
	return name, false
}

// Address returns an address of an endpoint with what the handshake has to know of the endpoint:
// its host name (gRFC A101), if the Cluster has auto_host_sni, and the way through its proxy (gRFC
// A86), if the Cluster asks for that. Either may be empty. The Bundle may be nil.
func (b *Bundle) Address(address, hostname, proxy string) resolver.Address {
	a := resolver.Address{Addr: address}
	if b == nil {
		return a
	}
	var e endpoint
	if b.security != nil && b.security.AutoHostSNI {
		e.hostname = hostname
	}
	if b.key.way.connect && proxy != "" {
		e.proxy, e.address = proxy, address
	}
	if e != (endpoint{}) {
		a.Attributes = a.Attributes.WithValue(endpointKey{}, e)
	}
	return a
}

// The advice that Advise adds to errors. Who can act depends on who decides on the security of the connection.
const (
	adviceObey = "dial with credentials of google.golang.org/grpc/credentials/xds, and have the control plane ask for TLS"
	adviceAsk  = "the Cluster asks for no TLS: have the control plane ask for it (with Istio, by a DestinationRule with tls.mode ISTIO_MUTUAL), " +
		"or dial with fallback credentials that the server accepts"
)

// Advise adds to the error of a connection what the error says of the server (said, made by package tlsadvice; "" for nothing), and
// advice. bundle has the credentials of the connection; nil: the channel's own. The Pool may be nil. Errors of connections
// that the Cluster has secured are returned unchanged.
func (p *Pool) Advise(err error, said string, bundle *Bundle) error {
	if said == "" || p == nil || bundle != nil && bundle.security != nil {
		return err
	}
	advice := adviceObey
	if p.obeys {
		advice = adviceAsk
	}
	return fmt.Errorf("%w; %s: %s", err, said, advice)
}
