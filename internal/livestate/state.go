// Package livestate says how the process is: which clusters work and which do not, what becomes of their RPCs, how it
// stands with its control planes, what is wrong, worst first, and in one line whether it is healthy.
//
// Claims are about RPCs and connections, not about what was ACKed; what cannot be known is called unknown. The
// values are made on request, of what packages channels, xdsclient and outcomes know, and are what the
// status page and CSDS show, and what package explain adds to what follows from resources. The package keeps nothing and changes nothing, but that RPCs are counted from the first
// request on (outcomes.Look). It explains no single RPC: package explain does.
package livestate

import (
	"bytes"
	"cmp"
	"encoding/json"
	"math"
	"slices"
	"time"

	"github.com/dynxds/dynxds/internal/bounds"
	"github.com/dynxds/dynxds/internal/certfiles"
	"github.com/dynxds/dynxds/internal/inspect"
	"github.com/dynxds/dynxds/internal/outcomes"
)

// Format is that of State as JSON. It grows when a key changes its meaning.
const Format = "3"

// Health is how a cluster, or the process, is.
type Health string

// The values of Health, the worst first.
const (
	// Failing: RPCs fail, most or all of them, or would.
	Failing Health = "failing"
	// Degraded: most RPCs work, but something is wrong.
	Degraded Health = "degraded"
	// Unknown: there is no sign either way.
	Unknown Health = "unknown"
	// Healthy: RPCs work, or there are connections to the endpoints.
	Healthy Health = "healthy"
	// Idle: a cluster that no RPC has needed lately, and that has no connection.
	Idle Health = "idle"
)

// Rank orders Healths, the worst first.
func (h Health) Rank() int {
	if i := slices.Index([]Health{Failing, Degraded, Unknown, Healthy}, h); i >= 0 {
		return i
	}
	return 4
}

// Bounds on a State that leaves the process. A page shows as much as it is asked for.
const (
	MaxProblems  = 50
	MaxClusters  = 200
	MaxEndpoints = 20 // bad ones, of a cluster
	MaxRoutes    = 20 // of a cluster
	MaxSplits    = 10
	MaxSplit     = 20 // clusters of a Split
	// maxDetails is how many bad endpoints and routes all clusters have together: with texts of a peer's choice, they
	// would make an answer larger than gRPC clients take.
	maxDetails  = 300
	maxChannels = 100
	maxServers  = 100
	// maxCertificates bounds what files a bootstrap names.
	maxCertificates = 20
)

// State is how the process is, or the part of it that uses one xDS client. It encodes as JSON.
// RPCs beyond the kinds that are counted apart are those of a cluster [outcomes.Others].
type State struct {
	Time     time.Time `json:"time"`
	Verdict  Verdict   `json:"verdict"`
	Problems []Problem `json:"problems"`
	// ProblemsLeftOut and the fields like it count what is not in the list before.
	ProblemsLeftOut int `json:"problems_left_out,omitempty"`
	// CountingSince is since when RPCs are counted. It is zero if that began with this State.
	CountingSince   time.Time  `json:"counting_since,omitzero"`
	Servers         []Server   `json:"servers"`
	ServersLeftOut  int        `json:"servers_left_out,omitempty"`
	Channels        []Channel  `json:"channels"`
	ChannelsLeftOut int        `json:"channels_left_out,omitempty"`
	Clusters        []*Cluster `json:"clusters"`
	ClustersLeftOut int        `json:"clusters_left_out,omitempty"`
	// Splits are the routes that have sent RPCs to several clusters in the last minute, those with most failures first.
	Splits        []Split `json:"splits,omitempty"`
	SplitsLeftOut int     `json:"splits_left_out,omitempty"`
	// Certificates are those that the process presents to its peers, those that end first in front.
	Certificates        []certfiles.Identity `json:"certificates,omitempty"`
	CertificatesLeftOut int                  `json:"certificates_left_out,omitempty"`
}

// Problem is something that is wrong.
type Problem struct {
	Severity Health `json:"severity"` // Failing or Degraded
	// Kind is what Subject is: "channel", "cluster", "rpcs" of a channel, "server", "resource" or "certificate".
	Kind string `json:"kind"`
	// Subject says in words what has the problem, and Text what it is.
	Subject string    `json:"subject"`
	Text    string    `json:"text"`
	Since   time.Time `json:"since,omitzero"`
	// Where is the place in the control plane's documents, as "file:line".
	Where string `json:"where,omitempty"`
	// Target, Cluster and Server are what it is about, as far as they apply.
	Target  string `json:"target,omitempty"`
	Cluster string `json:"cluster,omitempty"`
	Server  string `json:"server,omitempty"`

	// same is how many others have the problem, and weight how many RPCs failed, of ended.
	same          int
	weight, ended uint64
}

// Server is a management server.
type Server struct {
	URI       string `json:"uri"`
	Connected bool   `json:"connected"`
	// Error is why it is unreachable, and Since since when, if that is remembered.
	Error string    `json:"error,omitempty"`
	Since time.Time `json:"since,omitzero"`
	// NextAttempt is about when an unreachable one is tried again, zero while that is under way.
	NextAttempt time.Time `json:"next_attempt,omitzero"`
	// BehindSince is when a relay said that its own control plane is unreachable, zero if that is not so.
	BehindSince time.Time `json:"behind_unreachable_since,omitzero"`
}

// Channel is an xDS channel.
type Channel struct {
	Number uint64    `json:"number"`
	Target string    `json:"target"`
	Mode   string    `json:"mode"`
	State  string    `json:"state"`
	Health Health    `json:"health"`
	Since  time.Time `json:"since"`
	// Error is why RPCs have no configuration, or none of xDS.
	Error    string `json:"error,omitempty"`
	Version  uint64 `json:"version"`
	Clusters int    `json:"clusters"`
	// RPCs are those that no route has sent to a cluster.
	RPCs *outcomes.Report `json:"rpcs,omitempty"`
}

// Cluster is a cluster of the channels with one target.
type Cluster struct {
	Name   string `json:"name"`
	Target string `json:"target"`
	Health Health `json:"health"`
	// Phase and State are those of inspect.Cluster.
	Phase string `json:"phase"`
	State string `json:"state"`
	// Since is when its trouble began, if that is known.
	Since time.Time `json:"since,omitzero"`
	// Error is why it does not work, and Notes is what is wrong with resources in use.
	Error     string    `json:"error,omitempty"`
	Notes     string    `json:"notes,omitempty"`
	Endpoints Endpoints `json:"endpoints"`
	// BadEndpoints are those that are failing, ejected or unhealthy, each without names beside its first address. If it is ejected, Since is since when.
	BadEndpoints []inspect.Endpoint `json:"bad_endpoints,omitempty"`
	RPCs         *outcomes.Report   `json:"rpcs,omitempty"`
	Routes       []Route            `json:"routes,omitempty"`

	// Live is the cluster as the channel has it, nil in a State that has left the process.
	Live *inspect.Cluster `json:"-"`
}

// Endpoints counts the endpoints of a cluster. Each is one of the latter.
type Endpoints struct {
	All        int `json:"all"`
	Ready      int `json:"ready"`
	Connecting int `json:"connecting"`
	Idle       int `json:"idle"`
	Failing    int `json:"failing"`
	Ejected    int `json:"ejected"`
	Unhealthy  int `json:"unhealthy"` // by the control plane, or by health checks
}

// Route is a route that has sent RPCs to a cluster.
type Route struct {
	Route string           `json:"route"`
	RPCs  *outcomes.Report `json:"rpcs"`
}

// Split is a route that has sent RPCs to several clusters, such as two versions of a service.
type Split struct {
	Target string `json:"target"`
	// Route is the name of the route, or the paths that it matches. Routes of one name, or of the same paths without one, are one.
	Route string `json:"route"`
	// Clusters are in the order of their names, at most MaxSplit of them.
	Clusters []SplitCluster `json:"clusters"`
}

// SplitCluster is what became of the RPCs that a route has sent to a cluster.
type SplitCluster struct {
	Name   string          `json:"name"`
	Minute outcomes.Minute `json:"minute"`
}

// JSON returns the State as it leaves the process, without what is beyond the bounds. Long names are cut here and not before, as names
// are keys.
func (s *State) JSON() []byte {
	s.Problems, s.ProblemsLeftOut = bound(s.Problems, MaxProblems)
	s.Servers, s.ServersLeftOut = bound(s.Servers, maxServers)
	if len(s.Channels) > maxChannels {
		worst := make(map[string]int) // by target: the Rank of its worst channel or cluster, below that of Idle
		for i := range s.Channels {
			c := &s.Channels[i]
			worst[c.Target] = min(worst[c.Target], c.Health.Rank()-Idle.Rank())
		}
		for _, c := range s.Clusters {
			worst[c.Target] = min(worst[c.Target], c.Health.Rank()-Idle.Rank())
		}
		slices.SortStableFunc(s.Channels, func(a, b Channel) int { return cmp.Compare(worst[a.Target], worst[b.Target]) })
	}
	s.Channels, s.ChannelsLeftOut = bound(s.Channels, maxChannels)
	s.Clusters, s.ClustersLeftOut = bound(s.Clusters, MaxClusters)
	s.Splits, s.SplitsLeftOut = bound(s.Splits, MaxSplits)
	s.Certificates, s.CertificatesLeftOut = bound(s.Certificates, maxCertificates)
	room := maxDetails
	for _, c := range s.Clusters {
		c.BadEndpoints, _ = bound(c.BadEndpoints, room)
		room -= len(c.BadEndpoints)
		c.Routes, _ = bound(c.Routes, room)
		room -= len(c.Routes)
	}
	content, _ := json.Marshal(s) // of texts, numbers and times, which cannot fail
	return Cut(content, bounds.ErrorText, math.MaxInt, func(name string, _ int) string { return text(name) })
}

func bound[T any](all []T, limit int) ([]T, int) {
	n := min(len(all), limit)
	return all[:n], len(all) - n
}

// sentences are the keys of what is said in sentences, which may be as long as an error. All other texts are names.
var sentences = map[string]bool{
	"error": true, "last_error": true, "reason": true, "why": true, "notes": true, "action": true, "text": true, "detail": true,
	"first_fault": true, "waiting": true, "reports": true, "reasons": true, "subject": true, "where": true,
}

// Cut returns JSON in which shorten has replaced long texts. Names and sentences have a limit each, in bytes of JSON; the key before a
// text, or before its list, says which of the two the text is.
func Cut(content []byte, names, inSentences int, shorten func(text string, limit int) string) []byte {
	all, limit := make([]byte, 0, len(content)), names
	for {
		start := bytes.IndexByte(content, '"')
		if start < 0 {
			return append(all, content...)
		}
		end := start + 1
		for ; content[end] != '"'; end++ {
			if content[end] == '\\' {
				end++
			}
		}
		end++
		written := content[start:end]
		all, content = append(all, content[:start]...), content[end:]
		switch {
		case bytes.HasPrefix(content, []byte(":")):
			if limit = names; sentences[string(written[1:len(written)-1])] {
				limit = inSentences
			}
		case len(written)-len(`""`) > limit:
			var text string
			_ = json.Unmarshal(written, &text)
			written, _ = json.Marshal(shorten(text, limit))
		}
		all = append(all, written...)
	}
}
