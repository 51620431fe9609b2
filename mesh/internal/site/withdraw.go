package site

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dynxds/dynxds/internal/faults"
	"github.com/dynxds/dynxds/mesh/internal/folder"
	"github.com/dynxds/dynxds/mesh/meshroute"
)

// DefaultWithdrawalDelay is the default of Options.WithdrawalDelay.
const DefaultWithdrawalDelay = 10 * time.Second

// Withdrawal is what clients can no longer reach after a change: services and Listeners that are gone, and services that
// have lost all their endpoints.
type Withdrawal struct {
	// Services are the names, in order.
	Services []string
	// Of is how many there were before, and Left how many there are then, new ones among them.
	Of, Left int
}

// Withdrawn compares two contents.
func Withdrawn(before, after *folder.Content) Withdrawal {
	old, now := reachableIn(before), reachableIn(after)
	w := Withdrawal{Of: len(old), Left: len(now)}
	if !slices.Equal(old, now) {
		w.Services = slices.Sorted(slices.Values(lacking(now, old, func(name string) string { return name })))
	}
	return w
}

// reachableIn returns the names that clients can dial: services with endpoints, and Listeners.
func reachableIn(c *folder.Content) []string {
	if c == nil {
		return nil
	}
	names := make([]string, 0, len(c.Services))
	for _, s := range c.Services {
		if len(s.Endpoints) > 0 {
			names = append(names, s.Name)
		}
	}
	for _, r := range c.Resources {
		if r.Any.GetTypeUrl() == meshroute.ListenerType {
			names = append(names, r.Name)
		}
	}
	return names
}

// IsLarge reports whether clients can reach fewer services by more than a third: such a change is more likely to be half of
// one, or a mistake, than other changes are. A service that comes makes up for one that goes.
func (w Withdrawal) IsLarge() bool { return 3*(w.Of-w.Left) > w.Of }

// maxNamed bounds the bytes of the names in a text.
const maxNamed = 500

// String says what is withdrawn, for example "2 of 3 services (a, b)".
func (w Withdrawal) String() string {
	return fmt.Sprintf("%d of %s (%s)", len(w.Services), faults.Count(w.Of, "service"), faults.Shorten(strings.Join(w.Services, ", "), maxNamed))
}

// withheld is a large withdrawal that waits.
//
//	0 s    rm -r mesh/*; cp -r new/* mesh/     the first files are deleted: 3 of 4 services would be withdrawn; they stay
//	1 s    the copy is complete                nothing is withdrawn; what was copied is published
//
// Without the copy the three services are withdrawn when they are due. Until then whatever is new or changed is published.
type withheld struct {
	Withdrawal
	// due is when it is published all the same: the delay after the first of the withdrawals that wait without a break.
	due time.Time
}

// keepRemoved returns the desired documents, with all published ones that they withdraw, whose names these are in order, or no longer have:
// routes lead to services, so neither goes without the other.
func keepRemoved(published, desired *folder.Content, withdrawn []string) *folder.Content {
	next := *desired
	next.Services = slices.DeleteFunc(slices.Clone(desired.Services), func(s *meshroute.Service) bool {
		_, is := slices.BinarySearch(withdrawn, s.Name)
		return is
	})
	next.Services = append(next.Services, lacking(next.Services, published.Services, func(s *meshroute.Service) string { return s.Name })...)
	next.Policies = slices.Concat(desired.Policies, lacking(desired.Policies, published.Policies, func(p *meshroute.Policy) string { return p.Name }))
	next.Resources = slices.Concat(desired.Resources, lacking(desired.Resources, published.Resources, (*folder.Resource).Key))
	return &next
}

// lacking returns those of others whose keys a list does not have.
func lacking[T any](list, others []T, key func(T) string) []T {
	there := make(map[string]bool, len(list))
	for _, one := range list {
		there[key(one)] = true
	}
	return slices.DeleteFunc(slices.Clone(others), func(one T) bool { return there[key(one)] })
}

// decide returns what to publish of valid documents, and notes and logs what is withheld of them.
func (p *plane) decide(desired *folder.Content, now time.Time) *folder.Content {
	w, before, due := Withdrawn(p.published, desired), p.withheld, now.Add(p.opts.WithdrawalDelay)
	if before != nil {
		due = before.due
	}
	p.withheld = nil
	switch {
	case w.IsLarge() && now.Before(due):
		if p.withheld = (&withheld{w, due}); before == nil {
			p.log.Warn("the "+p.opts.Place+" withdraws more than a third of the services; they stay for now, as the change may be incomplete",
				"withdrawn", len(w.Services), "of", w.Of, "services", faults.Shorten(strings.Join(w.Services, ", "), maxNamed), "after", p.opts.WithdrawalDelay)
		}
		return keepRemoved(p.published, desired, w.Services)
	case before != nil && w.IsLarge():
		p.log.Warn("withdrawing services", "withdrawn", len(w.Services), "of", w.Of)
	case before != nil:
		p.log.Info("the withdrawal that waited was replaced")
	}
	return desired
}
