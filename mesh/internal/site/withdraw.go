package site

import (
	"errors"
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
	// Of is how many there were before.
	Of int
}

// Withdrawn compares two contents.
func Withdrawn(before, after *folder.Content) (w Withdrawal) {
	old, now := reachableIn(before), reachableIn(after)
	w.Of = len(old)
	if slices.Equal(old, now) {
		return w // which costs least, and is most frequent
	}
	there := make(map[string]bool, len(now))
	for _, name := range now {
		there[name] = true
	}
	for _, name := range old {
		if !there[name] {
			w.Services = append(w.Services, name)
		}
	}
	slices.Sort(w.Services)
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

// IsLarge reports whether more than a third is withdrawn: a change that is more likely to be half of one, or a mistake,
// than other changes are.
func (w Withdrawal) IsLarge() bool { return 3*len(w.Services) > w.Of }

// maxNamed bounds the bytes of the names in a text.
const maxNamed = 500

// String says what is withdrawn, for example "2 of 3 services (a, b)".
func (w Withdrawal) String() string {
	return fmt.Sprintf("%d of %s (%s)", len(w.Services), faults.Count(w.Of, "service"), faults.Shorten(strings.Join(w.Services, ", "), maxNamed))
}

// withdrawal is a content that waits, because it withdraws much.
//
//	0 s    rm -r mesh/*; cp -r new/* mesh/     the first files are deleted: 3 of 4 services would be withdrawn; it waits
//	1 s    the copy is complete                nothing is withdrawn; what was copied is published
//
// Without the copy the three services are withdrawn after the delay. While it waits, other changes of services do not begin
// the delay again.
type withdrawal struct {
	services []string
	until    time.Time
}

// errWaits is the error of a content that waits.
var errWaits = errors.New("the change withdraws more than a third of the services; waiting in case it is half of one")

// hold returns errWaits for a content that is not to be published yet.
func (r *reloader) hold(content *folder.Content) error {
	w := Withdrawn(r.published, content)
	last := r.withdrawal
	r.withdrawal = nil
	if !w.IsLarge() || r.delay <= 0 {
		if last != nil {
			r.log.Info("the waiting change was replaced")
		}
		return nil
	}
	if last == nil || !slices.Equal(last.services, w.Services) {
		last = &withdrawal{w.Services, time.Now().Add(r.delay)}
		r.log.Warn("the "+r.place+" withdraws more than a third of the services; waiting, as the change may be incomplete",
			"withdrawn", len(w.Services), "of", w.Of, "services", faults.Shorten(strings.Join(w.Services, ", "), maxNamed), "after", r.delay)
	} else if !time.Now().Before(last.until) {
		r.log.Warn("withdrawing services", "withdrawn", len(w.Services), "of", w.Of)
		return nil
	}
	r.withdrawal = last
	return errWaits
}

// waitsUntil returns when a withdrawal that waits is due, the zero time if there is none.
func (r *reloader) waitsUntil() time.Time {
	if r.withdrawal == nil {
		return time.Time{}
	}
	return r.withdrawal.until
}
