package status

import (
	"cmp"
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
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/dynxds/dynxds/internal/typeurl"
	"github.com/dynxds/dynxds/mesh/explain"
	"github.com/dynxds/dynxds/observe/csds"
)

// Explain says what becomes of an RPC of a process, by what its xDS clients hold, and by what it says of its connections.
func Explain(ctx context.Context, p Process, request explain.Request) (*explain.Explanation, error) {
	clients, err := p.fetch(ctx)
	if err != nil {
		return nil, err
	}
	return explained(p.Address, clients, request, explain.Explain)
}

// explained explains by what the xDS client for a target holds: by one client after the other, those for the target first, until
// there is no error.
func explained(address string, clients []*client, request explain.Request, by func(*explain.Source, explain.Request) (*explain.Explanation, error)) (*explain.Explanation, error) {
	target := request.Target
	var meant, others []*client // A process may have a client for each target, whose scope is the target.
	for _, c := range clients {
		switch in := slices.ContainsFunc(strings.Split(c.scope, ", "), func(one string) bool { return explain.SameTarget(one, target) }); {
		case c.isNone() && in:
			return nil, fmt.Errorf("%s: DNS resolves %s there, and no route decides: there is no bootstrap", address, target)
		case c.isNone():
		case in:
			meant = append(meant, c)
		default:
			others = append(others, c)
		}
	}
	if clients = append(meant, others...); len(clients) == 0 {
		return nil, fmt.Errorf("%s has no xDS client in use: dial %s in the process first", address, target)
	}
	var errs []error
	for _, c := range clients {
		if c.err != nil {
			return nil, fmt.Errorf("cannot use the status of %s: %w", address, c.err)
		}
		source := c.Source
		if others := len(clients) - 1; others > 0 {
			source.Notes = []string{fmt.Sprintf("the process has %d other xDS clients; this one is for %s", others, cmp.Or(c.scope, "unknown targets"))}
		}
		e, err := by(&source, request)
		if err == nil {
			return e, nil
		}
		if text := err.Error(); len(errs) < maxErrors && !slices.ContainsFunc(errs, func(e error) bool { return e.Error() == text }) {
			errs = append(errs, err)
		}
	}
	return nil, errors.Join(errs...)
}

// maxErrors bounds the errors of a process with many clients that cannot be explained.
const maxErrors = 10

// entry is one resource of a client.
type entry = statuspb.ClientConfig_GenericXdsConfig

// client is an xDS client of a process: what it holds, and how its channels are.
type client struct {
	explain.Source
	// scope has the targets that it is for, if the process says that.
	scope string
	// err is why RPCs cannot be explained by it.
	err error
}

// clientOf reads what a process says of a client.
func clientOf(address string, config *statuspb.ClientConfig) *client {
	c := &client{scope: config.GetClientScope(), Source: explain.Source{Running: true, Client: explain.ClientOf(address, config.GetNode())}}
	for _, e := range config.GetGenericXdsConfigs() {
		if e.GetName() == csds.StateName && e.GetTypeUrl() == stateType {
			c.State = cmp.Or(stateOf(e), c.State)
			continue
		}
		r, err := resourceOf(e)
		c.Resources, c.err = append(c.Resources, r), cmp.Or(c.err, err)
	}
	return c
}

// isNone reports whether it stands for the channels of dynxds that have no client, which DNS resolves for want of a bootstrap.
func (c *client) isNone() bool { return c.Client.Name == "" && c.State != nil && len(c.Resources) == 0 }

// resourceOf returns a resource as the client has it. With an error it is not to be explained by.
func resourceOf(c *entry) (*explain.Resource, error) {
	raw, err := unwrapped(c)
	r := &explain.Resource{TypeURL: typeURLOf(c, raw), Raw: raw, ResourceStatus: explain.ResourceStatus{Version: c.GetVersionInfo()}}
	r.Name, r.Variant = splitName(c.GetName(), raw)
	switch {
	case err != nil:
		err = fmt.Errorf("%s %q: %w", typeurl.ShortName(r.TypeURL), r.Name, err)
	case raw != nil && raw.GetTypeUrl() != r.TypeURL:
		err = fmt.Errorf("%s %q has a resource of type %s", typeurl.ShortName(r.TypeURL), r.Name, raw.GetTypeUrl())
	}
	if raw != nil {
		r.Updated = timeOf(c.GetLastUpdated())
	}
	if status := c.GetClientStatus(); status != adminpb.ClientResourceStatus_UNKNOWN {
		r.State = status.String()
	} else if raw != nil {
		r.State = "ACKED" // It is in use.
	}
	if f := c.GetErrorState(); f != nil {
		r.Error, r.ErrorVersion, r.ErrorTime = cmp.Or(f.GetDetails(), "the client gives no reason"), f.GetVersionInfo(), timeOf(f.GetLastUpdateAttempt())
	}
	return r, err
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

// unwrapped returns the resource of an entry without the wrapper of xDS, if it has one that can be read.
func unwrapped(e *entry) (*anypb.Any, error) {
	a, wrapper, opaque := e.GetXdsConfig(), new(discoverypb.Resource), new(wrapperspb.BytesValue)
	switch {
	case a.MessageIs(opaque) && a.UnmarshalTo(opaque) == nil: // dynxds gives a resource so that would be too expensive to print
		return &anypb.Any{TypeUrl: e.GetTypeUrl(), Value: opaque.GetValue()}, nil
	case !a.MessageIs(wrapper):
		return a, nil
	}
	if err := a.UnmarshalTo(wrapper); err != nil {
		return a, fmt.Errorf("its wrapper cannot be read: %w", err)
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

// nameIn returns the name in a resource, or "".
func nameIn(resource *anypb.Any) string {
	switch m, _ := resource.UnmarshalNew(); m := m.(type) {
	case interface{ GetName() string }:
		return m.GetName()
	case interface{ GetClusterName() string }:
		return m.GetClusterName()
	default:
		return ""
	}
}

// maxSurveys bounds the channels of a client that are surveyed: each survey looks at all of its resources.
const maxSurveys = 100

// Survey fetches the status of a process, and surveys the channel of a target, or all that are not resolved by DNS if target is
// empty, and counts those that are left out. Of a client that does not name its channels, each Listener is taken for one.
func Survey(ctx context.Context, p Process, target string) (r *Report, surveys []*explain.Explanation, left int, err error) {
	if r, err = Ask(ctx, p); err != nil {
		return nil, nil, 0, err
	}
	var clients []*client
	for i := range r.Clients {
		c := r.Clients[i].of
		if clients = append(clients, c); target != "" {
			continue
		}
		if c.err != nil {
			return nil, nil, 0, fmt.Errorf("cannot use the status of %s: %w", p.Address, c.err)
		}
		names := c.channels()
		left += max(0, len(names)-maxSurveys)
		for _, name := range names[:min(len(names), maxSurveys)] {
			request := explain.Request{Target: name}
			if c.State == nil {
				request = explain.Request{Listener: name}
			}
			// A channel that has not asked for its Listener is told by the state of channels.
			if s, err := explain.SurveySource(&c.Source, request); err == nil {
				surveys = append(surveys, s)
			}
		}
	}
	if target != "" {
		s, err := explained(p.Address, clients, explain.Request{Target: target}, explain.SurveySource)
		return r, []*explain.Explanation{s}, 0, err
	}
	return r, surveys, left, nil
}

// channels returns what to survey: the targets of the channels or, of a client that does not name them, its Listeners.
func (c *client) channels() (names []string) {
	if c.State == nil {
		for _, r := range c.Resources {
			if r.TypeURL == typeurl.Listener {
				names = append(names, r.Name)
			}
		}
	} else {
		for i := range c.State.Channels {
			if x := &c.State.Channels[i]; x.Mode == "xDS" {
				names = append(names, x.Target)
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}
