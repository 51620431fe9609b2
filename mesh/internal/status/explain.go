package status

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	adminpb "github.com/envoyproxy/go-control-plane/envoy/admin/v3"
	discoverypb "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	statuspb "github.com/envoyproxy/go-control-plane/envoy/service/status/v3"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/dynxds/dynxds/internal/typeurl"
	"github.com/dynxds/dynxds/mesh/explain"
	"github.com/dynxds/dynxds/observe/csds"
)

// Explain says what becomes of an RPC of a process, by what its xDS clients hold, and by what it says of its connections.
func Explain(ctx context.Context, p Process, request explain.Request) (e *explain.Explanation, err error) {
	configs, err := p.fetch(ctx)
	if err != nil {
		return nil, err
	}
	err = withSource(p.Address, configs, request.Target, func(s *explain.Source) (err error) {
		e, err = explain.Explain(s, request)
		return err
	})
	return e, err
}

// withSource calls a function with what the xDS client for a target holds: with one client after the other, those for the target
// first, until it returns no error.
func withSource(address string, configs []*statuspb.ClientConfig, target string, try func(*explain.Source) error) error {
	withoutClient := func(c *statuspb.ClientConfig) bool {
		return c.GetNode() == nil && len(c.GetGenericXdsConfigs()) == 1 && c.GetGenericXdsConfigs()[0].GetName() == csds.StateName
	}
	if slices.ContainsFunc(configs, func(c *statuspb.ClientConfig) bool { return withoutClient(c) && inScope(c, target) }) {
		return fmt.Errorf("%s: DNS resolves %s there, and no route decides: there is no bootstrap", address, target)
	}
	configs = slices.DeleteFunc(slices.Clone(configs), withoutClient)
	if len(configs) == 0 {
		return fmt.Errorf("%s has no xDS client in use: dial %s in the process first", address, target)
	}
	// A process may have a client for each target, whose scope is the target.
	others := slices.DeleteFunc(slices.Clone(configs), func(c *statuspb.ClientConfig) bool { return inScope(c, target) })
	configs = append(slices.DeleteFunc(configs, func(c *statuspb.ClientConfig) bool { return !inScope(c, target) }), others...)
	var errs []error
	for _, c := range configs {
		source, err := sourceOf(address, c)
		if err != nil {
			return err
		}
		if others := len(configs) - 1; others > 0 {
			source.Notes = append(source.Notes, fmt.Sprintf("the process has %d other xDS clients; this one is for %s", others, scope(c)))
		}
		if err = try(source); err == nil {
			return nil
		}
		if text := err.Error(); len(errs) < maxErrors && !slices.ContainsFunc(errs, func(e error) bool { return e.Error() == text }) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// maxErrors bounds the errors of a process with many clients that cannot be explained.
const maxErrors = 10

// inScope reports whether a client is for a target.
func inScope(c *statuspb.ClientConfig, target string) bool {
	for one := range strings.SplitSeq(c.GetClientScope(), ", ") {
		if explain.SameTarget(one, target) {
			return true
		}
	}
	return false
}

func scope(c *statuspb.ClientConfig) string {
	if scope := c.GetClientScope(); scope != "" {
		return scope
	}
	return "unknown targets"
}

// sourceOf returns what a client holds, and how its channels are.
func sourceOf(address string, c *statuspb.ClientConfig) (*explain.Source, error) {
	s := &explain.Source{Running: true, Client: explain.ClientOf(address, c.GetNode())}
	var resources []*entry
	s.State, resources = entries(c)
	for _, one := range resources {
		r, err := resourceOf(one)
		if err != nil {
			return nil, fmt.Errorf("cannot use the status of %s: %w", address, err)
		}
		s.Resources = append(s.Resources, r)
	}
	return s, nil
}

// resourceOf returns a resource as the client has it.
func resourceOf(c *entry) (*explain.Resource, error) {
	raw, err := unwrapped(c.GetXdsConfig())
	if err != nil {
		return nil, fmt.Errorf("%s %q: %w", typeurl.ShortName(c.GetTypeUrl()), c.GetName(), err)
	}
	r := &explain.Resource{TypeURL: typeURLOf(c, raw), Raw: raw, ResourceStatus: explain.ResourceStatus{Name: c.GetName(), Version: c.GetVersionInfo()}}
	if raw != nil && raw.GetTypeUrl() != r.TypeURL {
		return nil, fmt.Errorf("%s %q has a resource of type %s", typeurl.ShortName(r.TypeURL), r.Name, raw.GetTypeUrl())
	}
	r.Name, r.Variant = splitName(r.Name, raw)
	if raw != nil {
		r.Updated = timeOf(c.GetLastUpdated())
	}
	if status := c.GetClientStatus(); status != adminpb.ClientResourceStatus_UNKNOWN {
		r.State = status.String()
	} else if raw != nil {
		r.State = "ACKED" // It is in use.
	}
	if f := c.GetErrorState(); f != nil {
		r.Error, r.ErrorVersion = f.GetDetails(), f.GetVersionInfo()
		if r.Error == "" {
			r.Error = "the client gives no reason"
		}
		r.ErrorTime = timeOf(f.GetLastUpdateAttempt())
	}
	return r, nil
}

// typeURLOf returns the type URL of an entry. That of grpc-js is only the name of the type.
func typeURLOf(c *entry, raw *anypb.Any) string {
	switch url := c.GetTypeUrl(); {
	case url == "":
		return raw.GetTypeUrl()
	case !strings.Contains(url, "/"):
		return typeurl.Prefix + url
	default:
		return url
	}
}

// timeOf returns a time that JSON can have, the zero time if there is none.
func timeOf(at *timestamppb.Timestamp) time.Time {
	if !at.IsValid() {
		return time.Time{}
	}
	return at.AsTime()
}

// unwrapped returns the resource in the wrapper of xDS, if it has one.
func unwrapped(a *anypb.Any) (*anypb.Any, error) {
	wrapper := new(discoverypb.Resource)
	if !a.MessageIs(wrapper) {
		return a, nil
	}
	if err := a.UnmarshalTo(wrapper); err != nil {
		return nil, fmt.Errorf("its wrapper cannot be read: %w", err)
	}
	return wrapper.GetResource(), nil
}

// splitName returns the name of a resource, and what dynxds adds to it: the constraints or parameters of
// a variant, behind a space.
func splitName(name string, raw *anypb.Any) (string, string) {
	i := strings.Index(name, " {")
	if i < 0 || !strings.HasSuffix(name, "}") || nameIn(raw) == name {
		return name, ""
	}
	return name[:i], name[i+1:]
}
