package configselector_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/dynxds/dynxds/httpfilter"
	"github.com/dynxds/dynxds/internal/xdsresource"
	"github.com/dynxds/dynxds/internal/xdstest"
)

// marking is a filter that appends its name to the header "via".
func marking(name string) httpfilter.Instance {
	return filterOf(name, func(ctx context.Context, rpc *httpfilter.RPC, next httpfilter.Next) (grpc.ClientStream, error) {
		return next.NewStream(metadata.AppendToOutgoingContext(ctx, "via", name), rpc)
	})
}

// merging is a filter that appends its name, configuration and override to the header "via". built, unless nil, is called when one is merged.
func merging(name string, built func(merged string)) httpfilter.Instance {
	return httpfilter.Instance{Name: name, Config: strings.ToUpper(name), Filter: &testFilter{
		typeURL: "type.googleapis.com/test.Merging",
		build: func(name string) httpfilter.ClientInstance {
			return instanceFunc(func(config, override httpfilter.Config) (httpfilter.Interceptor, error) {
				text := fmt.Sprintf("%s:%v:%v", name, config, override)
				if built != nil {
					built(text)
				}
				return httpfilter.InterceptorFunc(func(ctx context.Context, rpc *httpfilter.RPC, next httpfilter.Next) (grpc.ClientStream, error) {
					return next.NewStream(metadata.AppendToOutgoingContext(ctx, "via", text), rpc)
				}), nil
			})
		},
	}}
}

// override is for a merging filter: "disabled", "enabled", for one of another type, or a configuration.
func override(value string) xdsresource.FilterOverride {
	switch value {
	case "disabled":
		return xdsresource.FilterOverride{Disabled: true}
	case "enabled":
		return xdsresource.FilterOverride{}
	case "other":
		return xdsresource.FilterOverride{Filter: &testFilter{typeURL: "type.googleapis.com/test.Other"}, Config: value}
	}
	return xdsresource.FilterOverride{Filter: &testFilter{typeURL: "type.googleapis.com/test.Merging"}, Config: value}
}

func TestAMergedConfigurationIsMadeOncePerDistinctCombination(t *testing.T) {
	t.Parallel()
	var routes []*xdsresource.Route
	for i := range 100 {
		route := toC()
		if i%2 == 0 {
			route.Overrides = xdsresource.FilterOverrides{"a": override("x")}
		}
		routes = append(routes, route)
	}
	var built []string
	w := newWorld(t, worldConfig{routes: routes, listener: chainOf(merging("a", func(merged string) { built = append(built, merged) }))})
	for range 10 {
		mustUnary(t, t.Context(), w.s, "/s/m")
	}
	slices.Sort(built)
	xdstest.Equal(t, "built", []string{"a:A:<nil>", "a:A:x"}, built)
}
