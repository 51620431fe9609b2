// Package certfiles reads certificates, keys and roots from files, and reads them again
// once they may have changed.
//
// It serves two keys of the bootstrap with the same files: credentials of type "tls" of a
// management server (gRFC A65), and certificate providers of the plugin "file_watcher"
// (gRFC A29), including SPIFFE trust bundle maps (gRFC A87). Package bootstrap parses the
// configuration with [Parse]; handshakes get the material from a [certprovider.Provider].
//
// gRPC's own file_watcher, package pemfile, does not fit: it writes the private key to the log when that does not fit the
// certificate, as while both are replaced; it takes a part of a file that is being written for the whole; a key that is
// a pipe without a writer keeps roots trusted that were removed; and while a file is missing or faulty it blocks until the
// deadline of the handshake and does not name the file.
package certfiles

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc/credentials/tls/certprovider"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/dynxds/dynxds/internal/faults"
	"github.com/dynxds/dynxds/internal/jsondoc"
)

// PluginName is the name of the provider in certificate_providers (gRFC A29).
const PluginName = "file_watcher"

// defaultRefresh is the default of refresh_interval (gRFCs A29, A65).
const defaultRefresh = 10 * time.Minute

// Config names the files. A path is empty if the configuration does not have it.
type Config struct {
	// CA has trusted roots in PEM form. It is not read if SPIFFEBundleMap is set.
	CA string
	// SPIFFEBundleMap has the roots of each SPIFFE trust domain, in JSON (gRFC A87).
	SPIFFEBundleMap string
	// Certificate and Key have the identity in PEM form. Both or neither are set.
	Certificate, Key string
	// Refresh is how old the material may get before the files are read again.
	Refresh time.Duration
	// CAName, CertificateName and KeyName are what errors call these files; empty: as the keys of the configuration.
	CAName, CertificateName, KeyName string
}

// Keys returns the keys of a configuration.
func Keys() []string {
	return []string{"ca_certificate_file", "spiffe_trust_bundle_map_file", "certificate_file", "private_key_file", "refresh_interval"}
}

// Parse reads a configuration, a JSON object. The error is a *faults.Faults with paths
// relative to it, which repeats no values: they may be secrets that were pasted in place
// of paths.
func Parse(config json.RawMessage) (Config, error) {
	found := new(faults.Faults)
	v, err := jsondoc.Parse(config, found)
	if err != nil {
		return Config{}, err
	}
	return Read(v.Object(Keys()...)), found.Err()
}

// Read reads a configuration that is a part of a document. It reports errors to the document.
func Read(o jsondoc.Object) (c Config) {
	c.CA = parsePath(o.Field("ca_certificate_file"))
	c.SPIFFEBundleMap = parsePath(o.Field("spiffe_trust_bundle_map_file"))
	certificate, key := o.Field("certificate_file"), o.Field("private_key_file")
	c.Certificate, c.Key = parsePath(certificate), parsePath(key)
	const missing = "expected the path of a file, as %s is given, found nothing"
	switch {
	case certificate.Absent() && !key.Absent():
		certificate.Fault("", missing, "private_key_file")
	case !certificate.Absent() && key.Absent():
		key.Fault("", missing, "certificate_file")
	}
	c.Refresh = ParseDuration(o.Field("refresh_interval"), defaultRefresh)
	return c
}

func parsePath(v jsondoc.Value) string {
	if v.Absent() {
		return ""
	}
	return ReadPath(v)
}

// ReadPath reads the path of a file. It refuses a key, a certificate or a JSON Web Token in its place.
func ReadPath(v jsondoc.Value) string {
	path, ok := v.NonEmptyText("the path of a file")
	if ok && (strings.ContainsAny(path, "\n\x00") || strings.Contains(path, "-----BEGIN") ||
		strings.HasPrefix(path, "eyJ") && strings.Count(path, ".") == 2) {
		v.Fault("", "expected the path of a file, found the content of one")
	}
	return path
}

// ParseDuration reads a positive duration as protobuf's JSON has it. If there is none, it returns absent.
func ParseDuration(v jsondoc.Value, absent time.Duration) time.Duration {
	if v.Absent() {
		return absent
	}
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

// Buildable returns the configuration in the form of gRPC's registry of certificate
// providers. Providers built from equal configurations share their material.
func (c Config) Buildable() *certprovider.BuildableConfig {
	// The key must not be that of a provider of gRPC's own plugin for the same files.
	key := fmt.Appendf(nil, "dynxds %q", []string{c.CA, c.SPIFFEBundleMap, c.Certificate, c.Key, c.Refresh.String()})
	return certprovider.NewBuildableConfig(PluginName, key, func(opts certprovider.BuildOptions) certprovider.Provider {
		files := c
		if opts.WantRoot && !opts.WantIdentity {
			files.Certificate, files.Key = "", ""
		}
		if opts.WantIdentity && !opts.WantRoot {
			files.CA, files.SPIFFEBundleMap = "", ""
		}
		return NewProvider(files)
	})
}

type doubtKey struct{}

// Doubt returns a context for KeyMaterial that says that a handshake has failed with what KeyMaterial returned before.
// The files may have changed since: a [Provider] then reads them again before its refresh interval is over, at most
// once a second. Other providers ignore it.
func Doubt(ctx context.Context) context.Context { return context.WithValue(ctx, doubtKey{}, true) }

// Invalid returns why peers refuse a certificate at this time, such as "expired at 2006-01-02T15:04:05Z", or "". Its
// chain counts as well: peers need it to verify the certificate.
func Invalid(c *tls.Certificate) string {
	now := time.Now()
	for i, der := range c.Certificate {
		parsed, err := x509.ParseCertificate(der)
		if err != nil {
			return "" // Package tls does not parse more than the first one either.
		}
		of := ""
		if i > 0 {
			of = "has an issuer, " + faults.Quote(parsed.Subject.String()) + ", that "
		}
		switch {
		case now.After(parsed.NotAfter):
			return of + "expired at " + parsed.NotAfter.UTC().Format(time.RFC3339)
		case now.Before(parsed.NotBefore):
			return of + "is not valid before " + parsed.NotBefore.UTC().Format(time.RFC3339)
		}
	}
	return ""
}
