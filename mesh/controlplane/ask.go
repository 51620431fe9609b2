package controlplane

import (
	"strings"

	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

// ask is shared by all subscriptions, of any stream, to one name with equal constraints: their
// choice is made once, and again only after a change that may affect it. Store.mu guards it.
//
// There are asks for names, for globs and for the wildcard. Only those for names have a choice.
type ask struct {
	table *table
	// number is that in the table's index.
	number uint32
	// at is the position in table.asks.
	at   int
	name nameKey
	// spelling is the name as its subscribers spell it.
	spelling string
	// key is that of the constraints, of the denial, and of a spelling that is not canonical; and which the rest of the topic of a client that subscribes
	// by locators.
	key, which string
	// constraints are those that apply, and sent those of the client's locator alone.
	constraints, sent dynparam.Constraints
	refused           *refusal
	// choice is the entry for the subscriptions to a name, nil if there is none; or if a source answers them.
	choice *entry
	// lists has what a wildcard covers.
	lists *lists
	// subs are the subscriptions.
	subs numbers
	// payer is the peer of one of the subscriptions.
	payer *peerUsage
	// demand is what the type's source answers; nil if there is no source, or clients do not share its answer.
	demand *Demand
	// own are the demands of single subscriptions: of all, if the source answers each by itself.
	own map[*subscription]*Demand
}

// follow updates the choice after changes of the variants, which s already has. A change of a variant
// that does not match, as most are, does not look at the others.
func (a *ask) follow(s *slot, changes []variantChange) {
	if a.refused != nil || a.table.source != nil {
		return
	}
	for _, c := range changes {
		switch {
		case c.old != nil && c.old == a.choice && c.now != nil:
			a.choice = c.now // its parameters, and so its rank, are the same
		case c.old != nil && c.old == a.choice:
			a.choice = a.table.choose(s, a.constraints)
			return
		case c.old == nil && a.constraints.Match(c.now.parameters()):
			a.choice = a.table.choose(slotOf(a.choice, c.now), a.constraints)
		}
	}
}

// newAsk adds an ask for a name, as sub is to join it.
func (t *table) newAsk(sub *subscription, key nameKey, askKey string, l locator) *ask {
	if sub.addressing == byNames && !l.isDenied() { // clients that send locators share a denial
		l.constraints = sub.implicit
	}
	a := &ask{
		table: t, name: key, spelling: strings.Clone(l.name), key: askKey, which: l.which(),
		constraints: l.constraints.Merge(sub.implicit), sent: l.constraints, refused: l.refused,
	}
	switch {
	case l.refused != nil:
		a.choice = l.refused.entry
	case t.source == nil:
		a.choice = t.choose(t.slots[key], a.constraints)
	}
	if key == wildcardKey {
		a.lists = new(lists)
	}
	t.addAsk(a)
	return a
}

// join adds a subscription.
func (a *ask) join(sub *subscription) {
	a.addSub(sub)
	a.demanded(sub)
}

// leave undoes join.
func (a *ask) leave(sub *subscription) {
	a.removeSub(sub)
	switch {
	case a.own[sub] != nil:
		a.own[sub].update()
	case a.demand != nil && len(a.subs) == 0:
		a.demand.update()
	default:
		a.dropIfUnused()
	}
}

// dropIfUnused removes an ask without subscriptions and demands.
func (a *ask) dropIfUnused() {
	if len(a.subs) == 0 && a.demand == nil && len(a.own) == 0 {
		a.table.removeAsk(a)
	}
}
