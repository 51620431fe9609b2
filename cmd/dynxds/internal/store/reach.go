package store

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"
)

// reachTimeout bounds the attempt to reach one member.
const reachTimeout = 500 * time.Millisecond

// reach connects to each member and returns the first reason why one cannot be reached, nil if all can.
// etcd's client keeps that to itself, and says only that time was up.
func (s *Store) reach() error {
	for _, endpoint := range s.config.Endpoints {
		_, address, _ := strings.Cut(endpoint, "://")
		if err := s.reachOne(address); err != nil {
			return fmt.Errorf("%s: %w", address, err)
		}
	}
	return nil
}

func (s *Store) reachOne(address string) error {
	conn, err := net.DialTimeout("tcp", address, reachTimeout)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(reachTimeout)); err != nil {
		return err
	}
	if s.config.TLS == nil {
		return speaksTLS(conn)
	}
	config := s.config.TLS.Clone()
	config.NextProtos = []string{"h2"}
	config.ServerName, _, _ = net.SplitHostPort(address)
	secure := tls.Client(conn, config)
	if err := secure.Handshake(); err != nil {
		return err
	}
	// With TLS 1.3 a server refuses the client's certificate after the handshake; else it sends its
	// settings.
	_, err = secure.Read(make([]byte, 1))
	if timeout := net.Error(nil); errors.As(err, &timeout) && timeout.Timeout() {
		return nil
	}
	return err
}

// speaksTLS returns an error if a member speaks TLS, which it was not asked for.
func speaksTLS(conn net.Conn) error {
	// No certificate is accepted, so that nothing is sent.
	err := tls.Client(conn, &tls.Config{ServerName: "etcd", RootCAs: x509.NewCertPool()}).Handshake()
	if verification := (*tls.CertificateVerificationError)(nil); errors.As(err, &verification) {
		return errors.New("it speaks TLS: use " + tlsScheme)
	}
	return nil
}
