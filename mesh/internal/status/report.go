package status

import (
	"context"
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/structpb"

	"github.com/dynxds/dynxds/internal/certfiles"
	"github.com/dynxds/dynxds/internal/faults"
	"github.com/dynxds/dynxds/internal/inspect"
	"github.com/dynxds/dynxds/internal/livestate"
	"github.com/dynxds/dynxds/internal/retries"
	"github.com/dynxds/dynxds/mesh/explain"
)

// Report is what the xDS clients of a process hold.
type Report struct {
	Clients []Client `json:"clients"`

	glance bool // as AskTop returns it
}

// Client is one xDS client.
type Client struct {
	Node  string `json:"node"`
	Scope string `json:"scope,omitempty"`
	// State is how its channels are: nil if the process does not say.
	State *livestate.State `json:"state,omitempty"`
	// Resources are those that the client holds, or has asked for. Their Ignored fields are those that dynxds does not act on.
	Resources []*explain.ResourceStatus `json:"resources"`

	of *client
}

// sample is for how long a process has counted RPCs, at least, before its answer is believed.
const sample = 2 * time.Second

// Ask fetches the status of a process, a second time if the first one had it begin to count RPCs: 2 s later, if the deadline
// of ctx allows that. The error names the process.
func Ask(ctx context.Context, p Process) (*Report, error) {
	for again := false; ; again = true {
		clients, err := p.fetch(ctx)
		if err != nil {
			return nil, err
		}
		r := reportOf(clients)
		deadline, ok := ctx.Deadline()
		if again || !slices.ContainsFunc(r.Clients, Client.uncounted) || ok && time.Until(deadline) < 2*sample {
			return r, nil
		}
		if err := retries.Wait(ctx, sample); err != nil {
			return nil, err
		}
	}
}

// AskTop is Ask for a report without resources, whose text is the clusters at a glance.
func AskTop(ctx context.Context, p Process) (*Report, error) {
	r, err := Ask(ctx, p)
	if err != nil {
		return nil, err
	}
	r.glance = true
	for i := range r.Clients {
		r.Clients[i].Resources = []*explain.ResourceStatus{}
	}
	return r, nil
}

// uncounted reports whether the RPCs of a client's channels are counted only since somebody has asked.
func (c Client) uncounted() bool {
	s := c.State
	return s != nil && len(s.Channels) > 0 && (s.CountingSince.IsZero() || s.Time.Sub(s.CountingSince) < sample)
}

func reportOf(clients []*client) *Report {
	r := &Report{Clients: []Client{}}
	for _, c := range clients {
		shown := Client{Node: c.Client.NodeID, Scope: c.scope, State: c.State, Resources: []*explain.ResourceStatus{}, of: c}
		for _, held := range c.Resources {
			shown.Resources = append(shown.Resources, held.Status())
		}
		r.Clients = append(r.Clients, shown)
	}
	return r
}

// Failing reports whether a client says that its RPCs fail.
func (r *Report) Failing() bool {
	return slices.ContainsFunc(r.Clients, func(c Client) bool { return c.State != nil && c.State.Verdict.State == livestate.Failing })
}

// Filter selects what is shown: by name, as a pattern such as "shop*" that has no meaning for slashes, and by state. Empty:
// anything.
type Filter struct{ Name, State string }

// Takes reports whether something with a name and these states is shown.
func (f Filter) Takes(name string, states ...string) bool {
	if f.State != "" && !slices.ContainsFunc(states, func(s string) bool { return strings.EqualFold(s, f.State) }) {
		return false
	}
	if f.Name == "" {
		return true
	}
	flat := strings.NewReplacer("/", "\x01")
	matched, err := path.Match(flat.Replace(f.Name), flat.Replace(name))
	return err == nil && matched
}

// Check returns an error for a malformed pattern.
func (f Filter) Check() error {
	_, err := path.Match(f.Name, "")
	return err
}

// States are the values of Filter.State that there may be.
func States() []string {
	return []string{
		"failing", "degraded", "unknown", "healthy", "idle", "REQUESTED", "DOES_NOT_EXIST", "ACKED", "NACKED", "RECEIVED_ERROR", "TIMEOUT",
		"READY", "CONNECTING", "IDLE", "TRANSIENT_FAILURE",
	}
}

// Apply leaves out what the filter does.
func (r *Report) Apply(f Filter) {
	for i := range r.Clients {
		c := &r.Clients[i]
		c.Resources = slices.DeleteFunc(c.Resources, func(r *explain.ResourceStatus) bool {
			return !f.Takes(r.Name, r.State) && !f.Takes(strings.TrimSpace(r.Name+" "+r.Variant), r.State)
		})
		if s := c.State; s != nil {
			s.Problems = slices.DeleteFunc(s.Problems, func(p livestate.Problem) bool {
				return !f.Takes(p.Cluster, string(p.Severity)) && !f.Takes(p.Target, string(p.Severity))
			})
			s.Certificates = slices.DeleteFunc(s.Certificates, func(c certfiles.Identity) bool { return !f.Takes(c.File) })
			s.Splits = slices.DeleteFunc(s.Splits, func(x livestate.Split) bool {
				return !slices.ContainsFunc(x.Clusters, func(c livestate.SplitCluster) bool { return f.Takes(c.Name) })
			})
			s.Servers = slices.DeleteFunc(s.Servers, func(s livestate.Server) bool { return !f.Takes(s.URI) })
			s.Channels = slices.DeleteFunc(s.Channels, func(c livestate.Channel) bool { return !f.Takes(c.Target, c.State, string(c.Health)) })
			s.Clusters = slices.DeleteFunc(s.Clusters, func(c *livestate.Cluster) bool { return !f.Takes(c.Name, c.State, string(c.Health)) })
		}
	}
}

// stateType is the type of the entry with the state of a process's channels, which is no resource (csds.StateName).
const stateType = "type.googleapis.com/google.protobuf.Struct"

// stateOf returns the state of a client's channels, nil if it cannot be read.
func stateOf(e *entry) *livestate.State {
	content, state := new(structpb.Struct), new(livestate.State)
	if e.GetXdsConfig().UnmarshalTo(content) != nil {
		return nil
	}
	if text, err := content.MarshalJSON(); err != nil || json.Unmarshal(text, state) != nil {
		return nil
	}
	state.Clusters = slices.DeleteFunc(state.Clusters, func(c *livestate.Cluster) bool { return c == nil }) // whatever a process says
	for _, c := range state.Clusters {
		all := len(c.BadEndpoints)
		c.BadEndpoints = slices.DeleteFunc(c.BadEndpoints, func(e inspect.Endpoint) bool { return len(e.Addresses) == 0 })
		if left := all - len(c.BadEndpoints); left > 0 {
			c.Notes = strings.TrimPrefix(fmt.Sprintf("%s; %s in format %q cannot be read", c.Notes, faults.Count(left, "endpoint"), e.GetVersionInfo()), "; ")
		}
	}
	return state
}
