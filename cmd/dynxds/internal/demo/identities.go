package demo

import (
	"crypto/tls"
	"path/filepath"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/credentials/xds"

	"github.com/dynxds/dynxds/cmd/dynxds/internal/certs"
	"github.com/dynxds/dynxds/internal/xdsmsg"
)

const (
	// trustDomain is that of the SPIFFE IDs in the certificates.
	trustDomain = "demo"
	// clientName is the name in the certificate of the clients.
	clientName = "client"
	// providerName is the certificate provider instance in the clients' bootstraps.
	providerName = "default"
)

// identities are the servers' configurations for mTLS, by backend. nil: no TLS.
type identities map[string]*tls.Config

// makeCertificates makes an authority, a certificate for each backend, and one for the clients,
// which is in the folder.
func makeCertificates(folder string) (identities, error) {
	authority, err := certs.Open(folder)
	if err != nil {
		return nil, err
	}
	if err := authority.Write(folder, trustDomain, clientName); err != nil {
		return nil, err
	}
	ids := identities{}
	for _, c := range clusters {
		for _, id := range c.backends {
			pair, err := authority.Issue(trustDomain, id)
			if err != nil {
				return nil, err
			}
			cert, err := tls.X509KeyPair(pair.Cert, pair.Key)
			if err != nil {
				return nil, err
			}
			ids[id] = &tls.Config{
				Certificates: []tls.Certificate{cert}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: authority.Pool(),
			}
		}
	}
	return ids, nil
}

// certificateProviders is the bootstrap's entry with the files of makeCertificates.
func certificateProviders(folder string) map[string]any {
	file := func(name string) string { return filepath.Join(folder, name) }
	return map[string]any{providerName: map[string]any{"plugin_name": "file_watcher", "config": map[string]string{
		"ca_certificate_file": file("ca.pem"),
		"certificate_file":    file(clientName + ".pem"), "private_key_file": file(clientName + "-key.pem"),
	}}}
}

// serverOptions are the options of a backend.
func (ids identities) serverOptions(backend string) []grpc.ServerOption {
	if ids == nil {
		return nil
	}
	return []grpc.ServerOption{grpc.Creds(credentials.NewTLS(ids[backend]))}
}

// socket is the transport socket of a Cluster with these backends: it asks for mTLS with one of
// them, by the SPIFFE ID. It is nil without TLS.
func (ids identities) socket(backends []string) *corepb.TransportSocket {
	if ids == nil {
		return nil
	}
	var sans []string
	for _, b := range backends {
		sans = append(sans, "spiffe://"+trustDomain+"/"+b)
	}
	return xdsmsg.TLSSocket(xdsmsg.UpstreamTLS(providerName, providerName, sans...))
}

// credentials are those of the clients' channels: with TLS, what the control plane asks for.
func (m *mesh) credentials() (credentials.TransportCredentials, error) {
	if m.identities == nil {
		return insecure.NewCredentials(), nil
	}
	return xds.NewClientCredentials(xds.ClientOptions{FallbackCreds: insecure.NewCredentials()})
}
