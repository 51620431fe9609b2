package serve

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/dynxds/dynxds/internal/bounds"
	"github.com/dynxds/dynxds/mesh/controlplane"
	"github.com/dynxds/dynxds/mesh/internal/admission"
	"github.com/dynxds/dynxds/mesh/internal/exit"
	"github.com/dynxds/dynxds/mesh/internal/metrics"
	"github.com/dynxds/dynxds/mesh/internal/planestate"
)

// DefaultGrace is the default of Options.Grace.
const DefaultGrace = 10 * time.Second

// DefaultMaxConnectionAge is the default of Options.MaxConnectionAge.
const DefaultMaxConnectionAge = 30 * time.Minute

// Options configure a Server.
type Options struct {
	// Listen is the TCP address, host:port, where port 0 takes a free one; or "unix:" and the path
	// of a Unix domain socket.
	Listen string
	// Cert and Key are PEM files with the server's certificate chain and private key, both or
	// none. Without them the server uses plaintext.
	Cert, Key string
	// Refresh is the interval at which the files of certificates are read again, DefaultRefresh if it is zero.
	Refresh time.Duration
	// ClientCA is a PEM file with the authorities of client certificates, which are then
	// required. It needs Cert and Key.
	ClientCA string
	// MaxStreams is controlplane.Options.MaxStreams; there may be as many streams of other services.
	MaxStreams int
	// MaxSubscriptions is controlplane.Options.MaxSubscriptions.
	MaxSubscriptions int
	// RequestBytes bounds the size of a request; zero stands for bounds.RequestBytes.
	RequestBytes int
	// Connections bounds how many connections all clients have together; zero stands for bounds.Connections, or three
	// quarters of the descriptors that the process may open, if these are fewer. The rest is for pages, files and connections upstream.
	Connections int
	// MaxConnectionAge is how long a connection lasts, give or take a tenth, so that clients come to use replicas that were added.
	// Its streams end with UNAVAILABLE after Grace. Zero stands for DefaultMaxConnectionAge.
	MaxConnectionAge time.Duration
	// AccessFile is the path of a file that controlplane.ParseAccess reads; empty: there are no rules.
	AccessFile string
	// NoChannelz and NoReflection leave out these services.
	NoChannelz, NoReflection bool
	// Grace bounds how long a drain waits for RPCs in flight, zero for DefaultGrace.
	Grace time.Duration
	// Admin is the address of the admin pages: /clients, /metrics and /healthz; see webpage.Open.
	// MetricsAddress is that of pages with the latter two only. Empty: there are none.
	Admin, MetricsAddress string
	// Metrics are those of the control plane; nil: none.
	Metrics *metrics.Plane
	// Configuration is what the control plane says about its documents, for the pages; nil: it has none.
	Configuration func() planestate.State
	// Upstream says in a line that what the control plane gets its resources from is unreachable, and since when, for /healthz and /clients: "" if it
	// is not; nil: it has nothing to say.
	Upstream func() string
	// Loads returns what clients have reported lately, for /clients; nil if they report to another one.
	Loads func() []controlplane.RecentLoad
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
	return exit.With(exit.Usage, errors.Join(faults...))
}

// Access reads the access rules.
func (o *Options) Access() (controlplane.Access, error) {
	if o.AccessFile == "" {
		return controlplane.Access{}, nil
	}
	content, err := os.ReadFile(o.AccessFile)
	if err != nil {
		return controlplane.Access{}, fmt.Errorf("--access: %w", err)
	}
	rules, err := controlplane.ParseAccess(content)
	if err != nil {
		return controlplane.Access{}, fmt.Errorf("--access %s: %w", o.AccessFile, err)
	}
	if o.ClientCA == "" {
		return controlplane.Access{}, fmt.Errorf(
			"--access %s: without --client-ca no certificate is verified, so that the rules would apply to nobody: add --client-ca", o.AccessFile)
	}
	return rules, nil
}

// withDefaults returns the options with defaults for zero values.
func (o Options) withDefaults() Options {
	o.Grace = cmp.Or(o.Grace, DefaultGrace)
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	o.MaxConnectionAge = cmp.Or(o.MaxConnectionAge, DefaultMaxConnectionAge)
	o.MaxStreams = cmp.Or(o.MaxStreams, bounds.Streams)
	o.RequestBytes = cmp.Or(o.RequestBytes, bounds.RequestBytes)
	o.Connections = cmp.Or(o.Connections, min(bounds.Connections, admission.Descriptors()/4*3))
	return o
}
