// Package rbac registers the RBAC filter (gRFC A41). Only servers run it, but a
// RouteConfiguration that clients share with servers may override its configuration.
package rbac

import (
	"fmt"

	"google.golang.org/protobuf/types/known/anypb"

	"github.com/dynxds/dynxds/httpfilter"
)

// The types of the filter's configurations.
const (
	typeURL         = "type.googleapis.com/envoy.extensions.filters.http.rbac.v3.RBAC"
	overrideTypeURL = "type.googleapis.com/envoy.extensions.filters.http.rbac.v3.RBACPerRoute"
)

func init() { httpfilter.Register(filter{}) }

// filter implements httpfilter.ServerFilter and httpfilter.OverrideParser. It checks only
// the type of a configuration.
type filter struct{}

// TypeURLs implements httpfilter.Filter.
func (filter) TypeURLs() []string { return []string{typeURL, overrideTypeURL} }

// IsTerminal implements httpfilter.Filter.
func (filter) IsTerminal() bool { return false }

// RunsOnServers implements httpfilter.ServerFilter.
func (filter) RunsOnServers() {}

// ParseConfig implements httpfilter.Filter.
func (filter) ParseConfig(config *anypb.Any) (httpfilter.Config, error) {
	return nil, check(config, typeURL)
}

// ParseOverride implements httpfilter.OverrideParser.
func (filter) ParseOverride(override *anypb.Any) (httpfilter.Config, error) {
	return nil, check(override, overrideTypeURL)
}

func check(config *anypb.Any, want string) error {
	got := config.GetTypeUrl()
	if inner, fields, err := httpfilter.TypedStruct(config); err != nil {
		return err
	} else if fields != nil {
		got = inner
	}
	if got != want {
		return fmt.Errorf("has type %q, want %q", got, want)
	}
	return nil
}
