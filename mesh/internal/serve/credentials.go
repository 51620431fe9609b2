package serve

import (
	"cmp"
	"context"
	"crypto/tls"
	"time"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/dynxds/dynxds/internal/certfiles"
	"github.com/dynxds/dynxds/mesh/internal/repeatlog"
)

// DefaultRefresh is the interval at which certificate files are read again, so that renewed certificates need no
// restart.
const DefaultRefresh = time.Minute

// transportCredentials returns the server's credentials, and a function for when they are not used any more.
// Invalid files are an error now, not at the first handshake.
func (o *Options) transportCredentials() (credentials.TransportCredentials, func(), error) {
	if o.Cert == "" {
		return insecure.NewCredentials(), func() {}, nil
	}
	provider := certfiles.NewProvider(certfiles.Config{
		CA: o.ClientCA, Certificate: o.Cert, Key: o.Key, Refresh: cmp.Or(o.Refresh, DefaultRefresh),
		CAName: "--client-ca", CertificateName: "--tls-cert", KeyName: "--tls-key",
	})
	provider.OnKept = func(err error, read time.Time) {
		o.Log.Warn("certificates cannot be read again; those in use stay", "error", err, "read", read, repeatlog.By("", err.Error()))
	}
	if _, err := provider.KeyMaterial(context.Background()); err != nil {
		provider.Close()
		return nil, nil, err
	}
	config := &tls.Config{
		MinVersion: tls.VersionTLS12,
		GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
			material, err := provider.KeyMaterial(hello.Context())
			if err != nil {
				return nil, err
			}
			now := &tls.Config{Certificates: material.Certs, MinVersion: tls.VersionTLS12, NextProtos: []string{"h2"}}
			if o.ClientCA != "" {
				now.ClientAuth, now.ClientCAs = tls.RequireAndVerifyClientCert, material.Roots
			}
			return now, nil
		},
	}
	return credentials.NewTLS(config), provider.Close, nil
}
