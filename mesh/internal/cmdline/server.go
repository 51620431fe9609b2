package cmdline

import (
	"io"
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/dynxds/dynxds/internal/bounds"
	"github.com/dynxds/dynxds/mesh/controlplane"
	"github.com/dynxds/dynxds/mesh/internal/repeatlog"
	"github.com/dynxds/dynxds/mesh/internal/serve"
)

// LimitFlags adds the flags of what clients may have.
func LimitFlags(cmd *cobra.Command, opts *serve.Options) {
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
