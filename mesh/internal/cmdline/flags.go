package cmdline

import (
	"cmp"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/dynxds/dynxds/internal/bounds"
	"github.com/dynxds/dynxds/mesh/controlplane"
	"github.com/dynxds/dynxds/mesh/internal/repeatlog"
	"github.com/dynxds/dynxds/mesh/internal/serve"
)

// checked is a flag whose text is checked where it is read, so that a faulty one is an error about the command line.
type checked struct {
	kind string
	set  func(text string) error
}

func (c *checked) Type() string          { return c.kind }
func (c *checked) Set(text string) error { return c.set(text) }
func (c *checked) String() string        { return "" } // help has the default that define gets

// define defines a flag that set reads. Help says its kind and its default, which may be empty.
func define(cmd *cobra.Command, name, shorthand, kind, byDefault, usage string, set func(text string) error) {
	cmd.Flags().VarPF(&checked{kind, set}, name, shorthand, usage).DefValue = byDefault
}

// Text defines a flag that may not be empty, as it is if it comes from a shell variable that is not
// set: that must not mean a server without TLS, or a relay without access rules.
func Text(cmd *cobra.Command, value *string, name, want, usage string) {
	define(cmd, name, "", "string", *value, usage, func(text string) error {
		if text == "" {
			return fmt.Errorf("want %s", want)
		}
		*value = text
		return nil
	})
}

// File defines a flag that names a file.
func File(cmd *cobra.Command, value *string, name, usage string) {
	Text(cmd, value, name, "the path of a file", usage)
}

// Address defines a flag of where to serve pages. It may be empty, which is nowhere.
func Address(cmd *cobra.Command, value *string, name, usage string) {
	define(cmd, name, "", "string", "", usage, func(text string) error {
		if _, _, err := net.SplitHostPort(text); err != nil && text != "" {
			return fmt.Errorf("want HOST:PORT: %w", err)
		}
		*value = text
		return nil
	})
}

// DefaultTimeout is the default of --timeout.
const DefaultTimeout = 10 * time.Second

// Timeout adds the flag of commands that ask another process. Those that ask etcd have --store-timeout.
func Timeout(cmd *cobra.Command, timeout *time.Duration, usage string) {
	Period(cmd, timeout, "timeout", DefaultTimeout, usage)
}

// Period defines a flag of a duration above 0. Its default may be 0, for none.
func Period(cmd *cobra.Command, value *time.Duration, name string, byDefault time.Duration, usage string) {
	*value = byDefault
	define(cmd, name, "", "duration", byDefault.String(), usage, func(text string) (err error) {
		if *value, err = duration(text); err == nil && *value == 0 {
			err = errors.New("want a duration above 0")
		}
		return err
	})
}

// Delay defines a flag of a duration that may be 0, which is stored as none.
func Delay(cmd *cobra.Command, value *time.Duration, name string, byDefault, none time.Duration, usage string) {
	*value = cmp.Or(byDefault, none)
	define(cmd, name, "", "duration", byDefault.String(), usage, func(text string) error {
		d, err := duration(text)
		*value = cmp.Or(d, none)
		return err
	})
}

// duration reads a duration that is not negative.
func duration(text string) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	switch {
	case err != nil:
		return 0, fmt.Errorf("%w: want for example %s", err, DefaultTimeout)
	case d < 0:
		return 0, errors.New("want a duration that is not negative")
	default:
		return d, nil
	}
}

// Limit defines a flag of a number above 0.
func Limit(cmd *cobra.Command, value *int, name string, byDefault int, usage string) {
	*value = byDefault
	define(cmd, name, "", "int", strconv.Itoa(byDefault), usage, func(text string) error {
		n, err := strconv.Atoi(text)
		if err != nil || n <= 0 {
			return errors.New("want a positive number")
		}
		*value = n
		return nil
	})
}

// Names defines a repeatable flag of comma-separated names.
func Names(cmd *cobra.Command, names *[]string, name, usage string) {
	define(cmd, name, "", "strings", "", usage, func(text string) error {
		given := strings.Split(text, ",")
		if slices.Contains(given, "") {
			return errors.New("want names with commas between them, none of them empty")
		}
		*names = append(*names, given...)
		return nil
	})
}

// Pairs defines a repeatable flag of comma-separated key=value pairs. Pairs with a comma are in double
// quotes. pflag's own type reads "a=b,c" as one pair.
func Pairs(cmd *cobra.Command, pairs *map[string]string, name, usage string) {
	define(cmd, name, "", "key=value,…", "", usage, func(text string) error { return addPairs(pairs, text) })
}

func addPairs(pairs *map[string]string, text string) error {
	if text == "" {
		return nil
	}
	fields, err := csv.NewReader(strings.NewReader(text)).Read()
	if err != nil {
		return fmt.Errorf("want key=value pairs with commas between them: %w", err)
	}
	if *pairs == nil {
		*pairs = make(map[string]string)
	}
	for _, field := range fields {
		key, value, found := strings.Cut(field, "=")
		if !found || key == "" {
			return fmt.Errorf("%q is not of the form key=value", field)
		}
		(*pairs)[key] = value
	}
	return nil
}

// Complete completes a flag.
func Complete(cmd *cobra.Command, flag string, with cobra.CompletionFunc) {
	// It fails if there is no such flag, or it has completions already.
	if err := cmd.RegisterFlagCompletionFunc(flag, with); err != nil {
		panic(err)
	}
}

// Values are the completions of a flag that takes one of them.
func Values(values ...string) cobra.CompletionFunc {
	return cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)
}

// Choice defines a flag with one of some values, which its usage lists.
func Choice(cmd *cobra.Command, value *string, name, shorthand, byDefault, usage string, values ...string) {
	*value = byDefault
	last := len(values) - 1
	list := strings.Join(values[:last], ", ") + " or " + values[last]
	define(cmd, name, shorthand, "string", byDefault, usage+list, func(text string) error {
		if !slices.Contains(values, text) {
			return fmt.Errorf("want %s", list)
		}
		*value = text
		return nil
	})
	Complete(cmd, name, Values(values...))
}

// ServerFlags adds the flags of a server: where it listens, by default at an address, and what clients may have.
func ServerFlags(cmd *cobra.Command, opts *serve.Options, listen string) {
	f := cmd.Flags()
	f.StringVar(&opts.Listen, "listen", listen, "TCP address to listen on, or unix:PATH")
	File(cmd, &opts.Cert, "tls-cert", "PEM file with the server's certificate, which is read again when it changes; without it there is no TLS")
	File(cmd, &opts.Key, "tls-key", "PEM file with the key of the certificate")
	File(cmd, &opts.ClientCA, "client-ca", "PEM file with certificate authorities; clients then need a certificate from one of them")
	Address(cmd, &opts.Admin, "admin", "serve pages with what clients hold and refuse (for dynxds clients), metrics and health, at this address, HOST:PORT")
	Address(cmd, &opts.MetricsAddress, "metrics", "serve metrics for Prometheus, and health, at this address, HOST:PORT")
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
