// Package planestate is what a control plane says about its own configuration: whether the newest documents are valid,
// since when they are not and why, and what it published last. "dynxds serve" keeps a State up to date; its status page,
// health, metrics and "dynxds clients" show it.
//
// A State describes documents, not clients: what clients have accepted is in controlplane.ClientStatus.
package planestate

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/dynxds/dynxds/internal/faults"
)

// State is the state of a control plane's configuration at one time. It is not changed once it is kept.
type State struct {
	// Place is where the documents are: "folder" or "store". Name is the folder's path or the store's address.
	Place string `json:"place"`
	Name  string `json:"name"`
	// FaultySince is when the newest documents became faulty; nil if they are valid. Faults is the number of their errors,
	// and First the first one, "file:line: what is wrong; what to do".
	FaultySince *time.Time `json:"faulty_since,omitempty"`
	Faults      int        `json:"faults,omitempty"`
	First       string     `json:"first_fault,omitempty"`
	// Permissive says that the documents are served though clients reject parts of them ("dynxds serve --permissive").
	// Otherwise clients keep what was published last while the documents are faulty.
	Permissive bool `json:"permissive,omitempty"`
	// Waiting says why documents that were removed are still published, such as "the change withdraws 2 services (a, b)";
	// they go at WaitingUntil.
	Waiting      string     `json:"waiting,omitempty"`
	WaitingUntil *time.Time `json:"waiting_until,omitempty"`
	// GoneSince is when the store ceased to answer, nil if it answers.
	GoneSince *time.Time `json:"gone_since,omitempty"`
	// Published is the last update, nil before the first one.
	Published *Published `json:"published,omitempty"`
}

// Published is an update of what clients are served.
type Published struct {
	At time.Time `json:"at"`
	// Version is the store's (controlplane.Store.Version).
	Version uint64 `json:"version"`
	// Changed and Removed count variants of resources.
	Changed int `json:"changed"`
	Removed int `json:"removed"`
	// What are the services that resources changed of, and resources that belong to no service, such as "Cluster a", in
	// order: at most MaxWhat of them. More counts the others.
	What []string `json:"what,omitempty"`
	More int      `json:"more,omitempty"`
	// Documents, Services and Policies are what is served.
	Documents int `json:"documents"`
	Services  int `json:"services"`
	Policies  int `json:"policies"`
	// Errors counts problems for which some clients get errors in place of resources, or routes whose RPCs fail, such as
	// references to services that do not exist (yet). Warnings counts what has no effect, or not on all clients.
	Errors   int `json:"errors,omitempty"`
	Warnings int `json:"warnings,omitempty"`
	// LeftOut counts the errors for which endpoints, services or policies are left out.
	LeftOut int `json:"left_out,omitempty"`
	// Reports are the errors and then the warnings, "file:line: severity: what is wrong": at most MaxReports of them.
	Reports []string `json:"reports,omitempty"`
}

// Bounds of Published.
const (
	MaxWhat    = 20
	MaxReports = 20
)

// Valid reports whether the newest documents have no error.
func (s *State) Valid() bool { return s.FaultySince == nil }

// Beside returns the Reports beside the first error, which is the detail of a Problem, and counts those that are left out.
func (p *Published) Beside() (reports []string, more int) {
	return p.Reports[min(1, p.Errors):], p.Errors + p.Warnings - len(p.Reports)
}

// Problem is something that is wrong with a configuration.
type Problem struct {
	// What says what is wrong, and Effect what follows for clients, or is empty.
	What, Effect string
	// Detail is more about it, with names of files and services, or empty.
	Detail string
	// Since is when it began, zero if that is not known or does not matter.
	Since time.Time
}

// Problems returns what is wrong, the worst first.
func (s *State) Problems() (all []Problem) {
	keep := "clients keep what was published last"
	if s.Published == nil {
		keep = "nothing is published yet"
	}
	if s.FaultySince != nil {
		effect := keep
		if s.Permissive {
			effect = "published nevertheless (--permissive)"
		}
		all = append(all, Problem{fmt.Sprintf("the %s has %s", s.Place, faults.Count(s.Faults, "error")), effect, s.First, *s.FaultySince})
	}
	if s.GoneSince != nil {
		all = append(all, Problem{What: fmt.Sprintf("the %s has not answered", s.Place), Effect: keep, Since: *s.GoneSince})
	}
	if s.Waiting != "" {
		what := "a large withdrawal of services waits"
		if s.WaitingUntil != nil {
			what += " until " + stamp(*s.WaitingUntil)
		}
		all = append(all, Problem{What: what, Detail: s.Waiting})
	}
	if p := s.Published; p != nil && p.Errors > 0 {
		all = append(all, Problem{faults.Count(p.Errors, "error") + " in what is published", "some clients get errors in place of resources, or their RPCs fail", p.Reports[0], time.Time{}})
	}
	return all
}

// Text says in lines what is wrong; it is empty if nothing is. Without details, names of files and services are left out.
func (s *State) Text(details bool) (lines []string) {
	for _, p := range s.Problems() {
		if !p.Since.IsZero() {
			p.What += " since " + stamp(p.Since)
		}
		lines = append(lines, p.Text(details))
	}
	return lines
}

// Text says what is wrong in one line, but for its time.
func (p *Problem) Text(details bool) string {
	text := p.What
	if p.Effect != "" {
		text += "; " + p.Effect
	}
	if details && p.Detail != "" {
		text += ": " + p.Detail
	}
	return text
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// Keeper keeps the present State. It is safe for concurrent use; one goroutine at a time may call Set.
type Keeper struct {
	state atomic.Pointer[State]
	// gone is when the store ceased to answer, zero if it answers; it may be nil.
	gone func() time.Time
}

// NewKeeper returns a Keeper of a State in which nothing was published. gone returns when the store ceased to answer, the
// zero time if it answers; it is called at any time.
func NewKeeper(place, name string, gone func() time.Time) *Keeper {
	k := &Keeper{gone: gone}
	k.state.Store(&State{Place: place, Name: name})
	return k
}

// Set changes the State.
func (k *Keeper) Set(change func(*State)) {
	next := *k.state.Load()
	change(&next)
	k.state.Store(&next)
}

// State returns the present State.
func (k *Keeper) State() State {
	s := *k.state.Load()
	if since := k.gone(); !since.IsZero() {
		s.GoneSince = &since
	}
	return s
}
