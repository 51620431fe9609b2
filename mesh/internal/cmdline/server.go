package cmdline

import (
	"io"
	"log/slog"
	"time"

	"github.com/spf13/cobra"

	"github.com/dynxds/dynxds/internal/bounds"
	"github.com/dynxds/dynxds/mesh/controlplane"
	"github.com/dynxds/dynxds/mesh/internal/repeatlog"
	"github.com/dynxds/dynxds/mesh/internal/serve"
)

// ServerFlags adds the flags of a server: where it listens, by default at an address, and what clients may have.
func ServerFlags(cmd *cobra.Command, opts *serve.Options, listen string) {
	f := cmd.Flags()
	f.StringVar(&opts.Listen, "listen", listen, "TCP address to listen on, or unix:PATH")
	File(cmd, &opts.Cert, "tls-cert", "PEM file with the server's certificate, which is read again when it changes; without it there is no TLS")
	File(cmd, &opts.Key, "tls-key", "PEM file with the key of the certificate")
	File(cmd, &opts.ClientCA, "client-ca", "PEM file with certificate authorities; clients then need a certificate from one of them")
	f.StringVar(&opts.Admin, "admin", "", "serve pages with what clients hold and refuse (for dynxds clients), metrics and health, at this address, HOST:PORT")
	f.StringVar(&opts.MetricsAddress, "metrics", "", "serve metrics for Prometheus, and health, at this address, HOST:PORT")
	Delay(cmd, &opts.Grace, "grace", serve.DefaultGrace, time.Nanosecond, "how long a drain waits for RPCs in flight")
	Limit(cmd, &opts.MaxStreams, "max-streams", bounds.Streams, "how many streams clients may have together; the clients of one host with one certificate identity may have half of them")
	Limit(cmd, &opts.MaxSubscriptions, "max-subscriptions", controlplane.DefaultMaxSubscriptions, "how many resources and types a stream may subscribe to")
	Limit(cmd, &opts.RequestBytes, "max-request-bytes", bounds.RequestBytes, "how large a request may be")
}

// LogFlags adds the flags of a log.
func LogFlags(cmd *cobra.Command, format, level *string) {
	Choice(cmd, format, "log-format", "", "text", "", "text", "json")
	Choice(cmd, level, "log-level", "", "info", "", "debug", "info", "warn", "error")
}

// NewLog returns the log of a command, by the values of its flags.
func NewLog(w io.Writer, format, level string) *slog.Logger {
	var least slog.Level
	_ = least.UnmarshalText([]byte(level)) // the flag allows no other
	opts := &slog.HandlerOptions{Level: least, ReplaceAttr: repeatlog.CutAttr}
	if format == "json" {
		return slog.New(repeatlog.NewHandler(slog.NewJSONHandler(w, opts)))
	}
	return slog.New(repeatlog.NewHandler(slog.NewTextHandler(w, opts)))
}
