package xdsclient

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestSubscriptionsOfOneName: whichever come and go, each is found by its key, and
// the first of its name by any of them.
func TestSubscriptionsOfOneName(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	subs := subscriptions{}
	var here []*subscription
	for range 2_000 {
		key := resourceKey{name: fmt.Sprint("name-", random.IntN(3)), variant: fmt.Sprint(random.IntN(5))}
		if s := subs.get(key); s != nil {
			subs.remove(s)
			here = slices.DeleteFunc(here, func(x *subscription) bool { return x == s })
		} else {
			s = newSubscription(&resource{key: key})
			subs.add(s)
			here = append(here, s)
		}
		for _, s := range here {
			if got := subs.get(s.resource.key); got != s {
				t.Fatalf("the subscription to %v is %v", s.resource.key, got)
			}
			first := subs.first(s)
			if first != subs.named([]byte(s.resource.key.name)) || !slices.Contains(slices.Collect(first.siblings()), s) {
				t.Fatalf("the first of the subscriptions to %q is %v", s.resource.key.name, first)
			}
		}
		if n := len(slices.Collect(subs.all())); n != len(here) {
			t.Fatalf("there are %d subscriptions, want %d", n, len(here))
		}
	}
}
