package serve

import (
	"errors"
	"log/slog"
	"time"

	"github.com/dynxds/dynxds/cmd/dynxds/internal/metrics"
)

// DefaultGrace is the default of Options.Grace.
const DefaultGrace = 10 * time.Second

// Options configure a Server.
type Options struct {
	// Listen is the TCP address, host:port, where port 0 takes a free one; or "unix:" and the path
	// of a Unix domain socket.
	Listen string
	// Cert and Key are PEM files with the server's certificate chain and private key, both or
	// none. Without them the server uses plaintext.
	Cert, Key string
	// ClientCA is a PEM file with the authorities of client certificates, which are then
	// required. It needs Cert and Key.
	ClientCA string
	// Grace bounds how long a drain waits for RPCs in flight, zero for DefaultGrace.
	Grace time.Duration
	// Admin is the address of the admin pages: /clients, /metrics and /healthz; see webpage.Open.
	// MetricsAddress is that of pages with the latter two only. Empty: there are none.
	Admin, MetricsAddress string
	// Metrics are those of the control plane; nil: none.
	Metrics *metrics.Plane
	// Log is the log of connections and streams; it may be nil.
	Log *slog.Logger
}

// check reports contradictions among the options, by the names of their flags.
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

// withDefaults returns the options with defaults for zero values.
func (o Options) withDefaults() Options {
	if o.Grace == 0 {
		o.Grace = DefaultGrace
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return o
}
