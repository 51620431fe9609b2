package certfiles

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"time"

	"github.com/dynxds/dynxds/internal/faults"
)

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
