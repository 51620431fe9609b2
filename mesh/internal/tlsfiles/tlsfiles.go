// Package tlsfiles makes the TLS configuration of a client from the files that flags name. It knows no servers.
package tlsfiles

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
)

// Client returns the configuration. ca has the authorities of the server's certificate, which are the system's without it; cert and key
// have the certificate to present, if any, and are read again for each connection. prefix is that of the flags, for errors: "--store-".
func Client(prefix, ca, cert, key string) (*tls.Config, error) {
	if (cert == "") != (key == "") {
		return nil, fmt.Errorf("%scert and %skey need each other", prefix, prefix)
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if ca != "" {
		pem, err := os.ReadFile(ca)
		if err != nil {
			return nil, fmt.Errorf("%sca: %w", prefix, err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%sca %s: there is no certificate in it", prefix, ca)
		}
	}
	if cert == "" {
		return config, nil
	}
	load := func() (*tls.Certificate, error) {
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			return nil, fmt.Errorf("%scert, %skey: %w", prefix, prefix, err)
		}
		return &pair, nil
	}
	config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return load() }
	_, err := load()
	return config, err
}
