package cmdline

import (
	"io"
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/dynxds/dynxds/cmd/dynxds/internal/repeatlog"
	"github.com/dynxds/dynxds/cmd/dynxds/internal/serve"
	"github.com/dynxds/dynxds/internal/bounds"
	"github.com/dynxds/dynxds/mesh/controlplane"
)

// LimitFlags adds the flags of what clients may have, and make the server hold.
func LimitFlags(cmd *cobra.Command, opts *serve.Options) {
	f := cmd.Flags()
	l := &opts.Limits
	Limit(cmd, &l.Streams, "max-streams", bounds.Streams, "how many streams clients may have together")
	Limit(cmd, &opts.StreamsPerConnection, "max-streams-per-connection", bounds.StreamsPerConnection, "how many streams a connection may have")
	Limit(cmd, &opts.MaxSubscriptions, "max-subscriptions", controlplane.DefaultMaxSubscriptions, "how many resources and types a stream may subscribe to")
	Limit(cmd, &l.Subscriptions, "max-total-subscriptions", bounds.Subscriptions, "how many resources all streams may subscribe to together, each counted for each stream")
	Limit(cmd, &l.Names, "max-names", bounds.Names, "how many distinct resources all streams may subscribe to together")
	Limit(cmd, &l.NodeBytes, "max-node-bytes", bounds.NodeBytes, "how much memory the nodes of all clients may take")
	Limit(cmd, &l.Versions, "max-versions", bounds.Versions, "how many versions that delta clients have from before, and that are not the server's, may wait to be compared")
	Limit(cmd, &l.ReplyBytes, "max-reply-bytes", bounds.ReplyBytes, "how many bytes of responses may wait for clients to read them")
	Limit(cmd, &opts.RequestBytes, "max-request-bytes", bounds.RequestBytes, "how large a request may be")
	Share(cmd, &l.PeerShare, "peer-share", bounds.PeerShare, "the part of each limit that the clients of one host with one certificate identity may have, at most; 1 for all of it")
	f.BoolVar(&opts.NoChannelz, "no-channelz", false, "do not serve channelz")
	f.BoolVar(&opts.NoReflection, "no-reflection", false, "do not serve reflection")
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
	opts := &slog.HandlerOptions{Level: least}
	if format == "json" {
		return slog.New(repeatlog.NewHandler(slog.NewJSONHandler(w, opts)))
	}
	return slog.New(repeatlog.NewHandler(slog.NewTextHandler(w, opts)))
}
