package bootstrap

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/grpclog"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/durationpb"

	// The bootstrap's certificate_providers has this plugin in every gRPC.
	_ "google.golang.org/grpc/credentials/tls/certprovider/pemfile"

	"github.com/dynxds/dynxds/internal/document"
)

var logger = grpclog.Component("dynxds-bootstrap")

const (
	// defaultRefresh is how old files may get if refresh_interval does not say
	// (gRFC A65).
	defaultRefresh = 10 * time.Minute
	// maxCertFile bounds each file, in bytes. A bundle of all public roots has
	// a quarter of it.
	maxCertFile = 1 << 20
)

// tlsBuilder is the type "tls" (gRFC A65): TLS, and mutual TLS if there is a
// client certificate.
type tlsBuilder struct{}

// tlsFiles is the configuration of tlsBuilder. Paths are empty if not given.
type tlsFiles struct {
	ca, certificate, key string
	refresh              time.Duration
}

func (tlsBuilder) Type() string { return "tls" }

func (tlsBuilder) ParseConfig(config json.RawMessage) (BuildCredentials, error) {
	found := &Faults{Source: "tls credentials"}
	v, err := document.ParseJSON(config, found)
	if err != nil {
		return nil, err
	}
	files := parseTLSFiles(v)
	if err := found.Err(); err != nil {
		return nil, err
	}
	return func() (credentials.Bundle, func(), error) {
		return tlsBundle{&reloadingTLS{material: &tlsMaterial{files: files}}}, nil, nil
	}, nil
}

func parseTLSFiles(v document.Value) tlsFiles {
	files := tlsFiles{refresh: defaultRefresh}
	o := v.Object("ca_certificate_file", "certificate_file", "private_key_file", "refresh_interval")
	if !o.IsObject() {
		return files
	}
	files.ca = parsePath(o.Field("ca_certificate_file"))
	files.certificate = parsePath(o.Field("certificate_file"))
	files.key = parsePath(o.Field("private_key_file"))
	switch certificate, key := o.Field("certificate_file"), o.Field("private_key_file"); {
	case certificate.Absent() && !key.Absent():
		certificate.Fault("", "expected the path of a file, as private_key_file is given, found nothing")
	case !certificate.Absent() && key.Absent():
		key.Fault("", "expected the path of a file, as certificate_file is given, found nothing")
	}
	if refresh := o.Field("refresh_interval"); !refresh.Absent() {
		files.refresh = parseDuration(refresh)
	}
	return files
}

// parsePath never repeats what it found: someone may have put the key itself
// there.
func parsePath(v document.Value) string {
	if v.Absent() {
		return ""
	}
	path, ok := v.NonEmptyText("the path of a file")
	if ok && (strings.ContainsAny(path, "\n\x00") || strings.Contains(path, "-----BEGIN")) {
		v.Fault("", "expected the path of a file, found the content of one")
	}
	return path
}

func parseDuration(v document.Value) time.Duration {
	const what = `a duration greater than 0 such as "600s"`
	var d durationpb.Duration
	switch err := protojson.Unmarshal(v.Raw(), &d); {
	case !v.IsText():
		v.Expected(what)
	case err != nil:
		v.Fault("", "expected %s, found a string that is no duration", what)
	case d.AsDuration() <= 0:
		v.Fault("", "expected %s, found one that is not", what)
	}
	return d.AsDuration()
}

// tlsBundle has one mode and no call credentials.
type tlsBundle struct {
	creds credentials.TransportCredentials
}

func (b tlsBundle) TransportCredentials() credentials.TransportCredentials { return b.creds }

func (tlsBundle) PerRPCCredentials() credentials.PerRPCCredentials { return nil }

func (tlsBundle) NewWithMode(string) (credentials.Bundle, error) {
	return nil, errors.New("tls credentials for a management server have no modes")
}

// reloadingTLS reads its files when a connection is made and they were last
// read longer than the refresh interval ago. A connection never sees an older
// file than with a goroutine that polls, the error for a file that cannot be
// read goes to the connection that needs it, and there is nothing to stop.
type reloadingTLS struct{ material *tlsMaterial }

func (c *reloadingTLS) ClientHandshake(ctx context.Context, authority string, conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	current, err := c.material.get()
	if err != nil {
		return nil, nil, err
	}
	return current.ClientHandshake(ctx, authority, conn)
}

func (c *reloadingTLS) ServerHandshake(net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, errors.New("tls credentials for a management server are for clients only")
}

func (c *reloadingTLS) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "tls"}
}

func (c *reloadingTLS) Clone() credentials.TransportCredentials {
	return &reloadingTLS{material: c.material}
}

// OverrideServerName is part of the interface; gRPC has no use for it any more.
func (c *reloadingTLS) OverrideServerName(string) error {
	return errors.New("tls credentials for a management server take the server's name from server_uri")
}

// tlsMaterial keeps what the files said when they were last read.
type tlsMaterial struct {
	files tlsFiles

	mu      sync.Mutex
	current credentials.TransportCredentials
	loaded  time.Time
}

// get returns credentials of files that were read within the refresh interval.
// Files that have become unusable are no reason to drop what they last said:
// most likely someone is replacing them at this moment.
func (m *tlsMaterial) get() (credentials.TransportCredentials, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.current != nil && time.Since(m.loaded) < m.files.refresh {
		return m.current, nil
	}
	fresh, err := m.files.load()
	switch {
	case err == nil:
		m.current, m.loaded = fresh, time.Now()
	case m.current == nil:
		return nil, err
	default:
		logger.Warningf("keeping the certificates read at %v: %v", m.loaded.Format(time.RFC3339), err)
	}
	return m.current, nil
}

func (f tlsFiles) load() (credentials.TransportCredentials, error) {
	config := &tls.Config{}
	if f.ca != "" {
		pem, err := readCertFile("ca_certificate_file", f.ca)
		if err != nil {
			return nil, err
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("ca_certificate_file %s: expected certificates in PEM form, found none", f.ca)
		}
	}
	if f.certificate != "" {
		pair, err := f.loadPair()
		if err != nil {
			return nil, err
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return credentials.NewTLS(config), nil
}

func (f tlsFiles) loadPair() (tls.Certificate, error) {
	certificate, err := readCertFile("certificate_file", f.certificate)
	if err != nil {
		return tls.Certificate{}, err
	}
	key, err := readCertFile("private_key_file", f.key)
	if err != nil {
		return tls.Certificate{}, err
	}
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("certificate_file %s with private_key_file %s: %w", f.certificate, f.key, err)
	}
	return pair, nil
}

// readCertFile reads a regular file: opening a named pipe might never return.
func readCertFile(key, path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is not a regular file", path)
	}
	var data []byte
	if err == nil {
		data, err = readFile(path, maxCertFile)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", key, err)
	}
	return data, nil
}
