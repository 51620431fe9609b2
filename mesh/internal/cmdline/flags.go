package cmdline

import (
	"encoding/csv"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// flagValue is a flag whose text is checked where it is read, so that a faulty one is an error about the command line.
type flagValue struct {
	kind string
	set  func(text string) error
	// text is the value as set reads it.
	text func() string
}

func (v *flagValue) Type() string          { return v.kind }
func (v *flagValue) Set(text string) error { return v.set(text) }
func (v *flagValue) String() string {
	if v.text == nil { // pflag makes zero values, to compare with defaults
		return ""
	}
	return v.text()
}

// Text defines a flag that may not be empty, as it is if it comes from a shell variable that is not
// set: that must not mean a server without TLS, or a relay without access rules.
func Text(cmd *cobra.Command, value *string, name, want, usage string) {
	cmd.Flags().Var(&flagValue{"string", func(text string) error {
		if text == "" {
			return fmt.Errorf("want %s", want)
		}
		*value = text
		return nil
	}, func() string { return *value }}, name, usage)
}

// File defines a flag that names a file.
func File(cmd *cobra.Command, value *string, name, usage string) {
	Text(cmd, value, name, "the path of a file", usage)
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
	cmd.Flags().Var(&flagValue{"duration", func(text string) error {
		d, err := duration(text)
		if err == nil && d == 0 {
			err = errors.New("want a duration above 0")
		}
		*value = d
		return err
	}, func() string {
		if *value == 0 {
			return ""
		}
		return value.String()
	}}, name, usage)
}

// Delay defines a flag of a duration that may be 0, which is stored as none.
func Delay(cmd *cobra.Command, value *time.Duration, name string, byDefault, none time.Duration, usage string) {
	*value = byDefault
	if byDefault == 0 {
		*value = none
	}
	cmd.Flags().Var(&flagValue{"duration", func(text string) (err error) {
		if *value, err = duration(text); *value == 0 {
			*value = none
		}
		return err
	}, func() string {
		if *value == none {
			return "0s"
		}
		return value.String()
	}}, name, usage)
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
	cmd.Flags().Var(&flagValue{"int", func(text string) error {
		n, err := strconv.Atoi(text)
		if err != nil || n <= 0 {
			return errors.New("want a positive number")
		}
		*value = n
		return nil
	}, func() string { return strconv.Itoa(*value) }}, name, usage)
}

// Pairs defines a repeatable flag of comma-separated key=value pairs. Pairs with a comma are in double
// quotes. pflag's own type reads "a=b,c" as one pair.
func Pairs(cmd *cobra.Command, pairs *map[string]string, name, usage string) {
	cmd.Flags().Var(&flagValue{"key=value,…", func(text string) error { return addPairs(pairs, text) }, func() string {
		var list []string
		for _, key := range slices.Sorted(maps.Keys(*pairs)) {
			list = append(list, key+"="+(*pairs)[key])
		}
		return strings.Join(list, ",")
	}}, name, usage)
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

// CompleteWith completes a flag with its possible values.
func CompleteWith(cmd *cobra.Command, flag string, values ...cobra.Completion) {
	// It fails if there is no such flag, or it has completions already.
	if err := cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)); err != nil {
		panic(err)
	}
}

// Choice defines a flag with one of some values, which its usage lists.
func Choice(cmd *cobra.Command, value *string, name, shorthand, byDefault, usage string, values ...string) {
	*value = byDefault
	last := len(values) - 1
	list := strings.Join(values[:last], ", ") + " or " + values[last]
	cmd.Flags().VarP(&flagValue{"string", func(text string) error {
		if !slices.Contains(values, text) {
			return fmt.Errorf("want %s", list)
		}
		*value = text
		return nil
	}, func() string { return *value }}, name, shorthand, usage+list)
	CompleteWith(cmd, name, values...)
}
