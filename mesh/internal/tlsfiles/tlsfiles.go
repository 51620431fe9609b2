// Package tlsfiles makes the TLS configuration from the files that flags name. It knows no servers.
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
	roots, err := readRoots(prefix+"ca", ca)
	config := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots}
	if err != nil || cert == "" {
		return config, err
	}
	load := func() (*tls.Certificate, error) {
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			return nil, fmt.Errorf("%scert, %skey: %w", prefix, prefix, err)
		}
		return &pair, nil
	}
	config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return load() }
	_, err = load()
	return config, err
}

// readRoots returns the authorities in the file of a flag, nil if the flag names none.
func readRoots(flag, file string) (*x509.CertPool, error) {
	if file == "" {
		return nil, nil
	}
	pem, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", flag, err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s %s: no PEM certificate in it", flag, file)
	}
	return roots, nil
}
