package serve

import (
	"errors"
	"log/slog"
	"time"
)

// DefaultGrace is how long a drain waits by default for what is in flight.
const DefaultGrace = 10 * time.Second

// Options say how to serve.
type Options struct {
	// Listen is the TCP address, host:port. Port 0 takes a free one.
	Listen string
	// Cert and Key are PEM files with the server's certificate chain and its
	// private key; both or none. Without them the server speaks plaintext.
	Cert, Key string
	// ClientCA is a PEM file with the authorities whose client certificates are
	// accepted. With it a client without such a certificate is refused. It needs
	// Cert and Key.
	ClientCA string
	// Grace bounds how long a drain waits for what is in flight, zero for
	// DefaultGrace.
	Grace time.Duration
	// Log is where connections and streams are told of, nil for nowhere.
	Log *slog.Logger
}

// check reports every contradiction among the options, by the names that they
// have as flags.
func (o *Options) check() error {
	var faults []error
	if o.Cert != "" && o.Key == "" {
		faults = append(faults, errors.New("--tls-cert needs --tls-key"))
	}
	if o.Key != "" && o.Cert == "" {
		faults = append(faults, errors.New("--tls-key needs --tls-cert"))
	}
	if o.ClientCA != "" && o.Cert == "" {
		faults = append(faults, errors.New("--client-ca needs --tls-cert and --tls-key"))
	}
	if o.Grace < 0 {
		faults = append(faults, errors.New("--grace is negative"))
	}
	return errors.Join(faults...)
}

// withDefaults returns the options with defaults in the place of zeros.
func (o Options) withDefaults() Options {
	if o.Grace == 0 {
		o.Grace = DefaultGrace
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return o
}
