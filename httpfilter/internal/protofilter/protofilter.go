// Package protofilter makes filters of functions: a filter that clients run, whose configurations and overrides are messages.
//
// It does not know what the messages say.
package protofilter

import (
	"errors"
	"slices"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/dynxds/dynxds/httpfilter"
	"github.com/dynxds/dynxds/internal/faults"
	"github.com/dynxds/dynxds/internal/typeurl"
)

// Filter is an httpfilter.ClientFilter with overrides. See New.
type Filter struct {
	typeURLs         []string
	config, override parser
	instance         func(httpfilter.ClientInstanceInfo) httpfilter.ClientInstance
	regexCost        *int // of the resource; nil: nobody counts
}

type parser func(a *anypb.Any, regexCost *int) (httpfilter.Config, error)

// New returns a filter whose configuration is a C and whose override is an O, which may be the same message. config and override read
// one: what is wrong with the message is added to a list, and then the result is of no use. instance makes an instance.
func New[C, O proto.Message](
	config func(C, *faults.Faults) httpfilter.Config, override func(O, *faults.Faults) httpfilter.Config,
	instance func(httpfilter.ClientInstanceInfo) httpfilter.ClientInstance,
) Filter {
	var c C
	var o O
	return Filter{slices.Compact([]string{typeURL(c), typeURL(o)}), parserOf(config), parserOf(override), instance, nil}
}

func typeURL(m proto.Message) string {
	return typeurl.Prefix + string(m.ProtoReflect().Descriptor().FullName())
}

func parserOf[M proto.Message](read func(M, *faults.Faults) httpfilter.Config) parser {
	return func(a *anypb.Any, regexCost *int) (httpfilter.Config, error) {
		var m M
		m = m.ProtoReflect().New().Interface().(M)
		if err := httpfilter.UnmarshalConfig(a, m); err != nil {
			return nil, err
		}
		found := faults.Faults{RegexCost: regexCost}
		c := read(m, &found)
		if found.Total() > 0 {
			return nil, errors.New(found.Join("; "))
		}
		return c, nil
	}
}

// TypeURLs implements httpfilter.Filter.
func (f Filter) TypeURLs() []string { return f.typeURLs }

// IsTerminal implements httpfilter.Filter.
func (Filter) IsTerminal() bool { return false }

// ParseConfig implements httpfilter.Filter.
func (f Filter) ParseConfig(a *anypb.Any) (httpfilter.Config, error) { return f.config(a, f.regexCost) }

// ParseOverride implements httpfilter.OverrideParser.
func (f Filter) ParseOverride(a *anypb.Any) (httpfilter.Config, error) {
	return f.override(a, f.regexCost)
}

// Counting returns the filter that adds the cost of the regular expressions it reads to that of a resource so far.
func (f Filter) Counting(regexCost *int) httpfilter.OverrideParser {
	f.regexCost = regexCost
	return f
}

// NewClientInstance implements httpfilter.ClientFilter.
func (f Filter) NewClientInstance(info httpfilter.ClientInstanceInfo) httpfilter.ClientInstance {
	return f.instance(info)
}
