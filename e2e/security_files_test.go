package e2e_test

import (
	"crypto/tls"
	"net"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/dynxds/dynxds/internal/testca"
	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/mesh/meshtest"
	"github.com/dynxds/dynxds/testutils"
)

// An expired certificate of the client: the error says which, since when and where it is from, and the files are read again
// before the refresh interval is over; so are roots that a server's certificate does not chain to.
func TestStaleFilesAreReadAgainSoon(t *testing.T) {
	t.Parallel()
	inOneWay(t, "files change, and no resource")
	expired := testca.Expired()
	for _, tc := range []struct {
		name        string
		stale       func(m *secureMesh) // writes the files of the start; the provider has read them once a connection has failed
		maxVersion  uint16
		want        string
		alsoWantCrt bool
	}{
		{"an expired certificate", func(m *secureMesh) { m.files.IssueFor(m.ca, expired) }, tls.VersionTLS13,
			"which expired at " + expired.NotAfter.UTC().Format(time.RFC3339), true},
		{"an expired certificate in TLS 1.2", func(m *secureMesh) { m.files.IssueFor(m.ca, expired) }, tls.VersionTLS12,
			"which expired at " + expired.NotAfter.UTC().Format(time.RFC3339), true},
		{"a certificate of another authority", func(m *secureMesh) {
			m.files.Issue(testca.New(t))
			m.files.Write(m.files.CA, m.ca.PEM())
		}, tls.VersionTLS13, "may have refused the client", false},
		{"roots without the server's", func(m *secureMesh) { m.files.Write(m.files.CA, testca.New(t).PEM()) }, tls.VersionTLS13,
			"unknown authority", false},
	} {
		xdstest.Parallel(t, tc.name, func(t *testing.T) {
			m := newSecureMesh(t)
			m.providers["default"] = watcher(map[string]string{
				"ca_certificate_file": m.files.CA, "certificate_file": m.files.Cert, "private_key_file": m.files.Key, "refresh_interval": "600s",
			})
			tc.stale(m)
			config := serverTLS(m.ca, true, forNames("a"))
			config.MaxVersion = tc.maxVersion
			backend := testutils.StartBackend(t, "b", grpc.Creds(credentials.NewTLS(config)))
			m.set(chain(service, toCluster("c")), asking("c", xdsmsg.UpstreamTLS("default", "default", "a"), backend))
			cc := m.dial()
			want := []string{`TLS of cluster "c": `, tc.want}
			if tc.alsoWantCrt {
				want = append(want, `certificate provider instance "default" (file_watcher)`, "(replace certificate_file "+m.files.Cert+")")
			}
			_, err := call(testutils.Context(t), cc, unary)
			checkReason(t, err, want...)
			m.files.Issue(m.ca)
			mustReachByEachKind(t, cc, backend)
		})
	}
}

// So it is with the certificate for a control plane.
func TestAnExpiredCertificateForTheControlPlane(t *testing.T) {
	t.Parallel()
	directly(t, "the control plane is dialled with TLS")
	ca, files, expired := testca.New(t), testca.NewFiles(t), testca.Expired()
	files.IssueFor(ca, expired)
	m := &mesh{t: t, features: withFeature(nil, protocol), Server: meshtest.StartServer(t,
		meshtest.GRPCOptions(grpc.Creds(credentials.NewTLS(ca.ServerConfig()))))}
	backend := testutils.StartBackend(t, "b")
	m.serve(service, "cluster", backend)
	_, port, err := net.SplitHostPort(m.Addr())
	xdstest.NoError(t, err)
	cc := dialWith(t, "xds:///"+service, m.bootstrap(testutils.TopLevel("xds_servers", []any{map[string]any{
		"server_uri": "dns:///localhost:" + port, "server_features": m.features,
		"channel_creds": []any{map[string]any{"type": "tls", "config": map[string]any{
			"ca_certificate_file": files.CA, "certificate_file": files.Cert, "private_key_file": files.Key, "refresh_interval": "600s"}}},
	}})))
	mustFail(t, cc, "Unavailable", "certificate_file "+files.Cert+", expired at "+expired.NotAfter.UTC().Format(time.RFC3339))
	files.Issue(ca)
	mustReach(t, cc, unary, backend)
}
