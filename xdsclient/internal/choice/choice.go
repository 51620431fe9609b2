// Package choice decides which variant of a resource a subscription takes of those that a
// response has (xRFC TP2). All of it is pure: what counts goes in as values, and nothing is kept.
//
// A resource is for every subscription to its name whose constraints its dynamic parameters
// satisfy. A subscription to a single resource takes one: of those that a response offers it
// the preferred one. So there are two passes over a response. The first one compares the
// offers ([Choice.With]), and the second one finds what becomes of each resource ([Case.Outcome]),
// so that nothing is decoded, and no watcher called, without need.
//
// A glob collection takes all variants that match, and has nothing to choose.
package choice

import "github.com/dynxds/dynxds/xdsclient/dynparam"

// Offer is a variant that a response has under the name of a subscription.
type Offer struct {
	// Index is the place of the resource in the response.
	Index      int
	Parameters dynparam.Parameters
	// Unreadable says that the parameters cannot be read. The resource may be for any
	// subscription to the name, and is for those that are offered nothing else.
	Unreadable bool
}

// Choice is the preferred one of the offers to a subscription. The zero value is that of no
// offers.
type Choice struct {
	Offer
	// Made says that there was an offer.
	Made bool
	// Ambiguous says that xRFC TP2 does not decide between the offer and Rival.
	Ambiguous bool
	Rival     dynparam.Parameters
}

// With returns the choice with one more offer. The order of the offers does not matter, but
// that of equal ones the first is chosen.
func (c Choice) With(o Offer, constraints dynparam.Constraints) Choice {
	switch {
	case !o.Unreadable && !constraints.Match(o.Parameters):
		return c
	case !c.Made || c.Unreadable && !o.Unreadable:
		return Choice{Offer: o, Made: true}
	case o.Unreadable:
		return c
	}
	both := [...]dynparam.Parameters{c.Parameters, o.Parameters}
	pick := constraints.Choose(both[:])
	if pick.Index == 1 {
		c.Offer = o
		c.Ambiguous = c.Ambiguous && constraints.Choose([]dynparam.Parameters{c.Parameters, c.Rival}).Rival >= 0
	}
	if pick.Rival >= 0 && !c.Ambiguous {
		c.Rival, c.Ambiguous = both[pick.Rival], true
	}
	return c
}

// Outcome says what becomes of a resource for a subscription to its name.
type Outcome int

const (
	// Unmatched: the parameters do not satisfy the constraints.
	Unmatched Outcome = iota
	// Outranked: it matches, but the response has a variant that is preferred.
	Outranked
	// Denied: it matches, but the response has an error for this very subscription.
	Denied
	// Late: it matches, but the subscription began after the offers were compared. The
	// response is not the answer to it.
	Late
	// Contested: it is the preferred one of the response, but the subscription has a variant
	// that it prefers to it. Settle decides.
	Contested
	// Kept: the subscription keeps the variant that it prefers.
	Kept
	// KeptAsking: the subscription keeps the variant that it prefers, and the server has to be
	// asked whether it still has that.
	KeptAsking
	// Taken: the subscription takes it.
	Taken
)

// Passed reports whether the resource matches and is not taken because of something better.
func (o Outcome) Passed() bool {
	return o == Outranked || o == Denied || o == Kept || o == KeptAsking
}

// Case is a resource of a response and a subscription to its name.
type Case struct {
	Offer
	Constraints dynparam.Constraints
	// Choice is that of all the offers to the subscription.
	Choice Choice
	// Denied says that the response has an error for the subscription.
	Denied bool
	// Holds says that the subscription has a variant of the server, Held, that the response
	// neither names as removed nor omits from a full state.
	Holds bool
	Held  dynparam.Parameters
}

// Outcome returns what becomes of the resource.
func (c *Case) Outcome() Outcome {
	switch matches := c.Unreadable || c.Constraints.Match(c.Parameters); {
	case !matches:
		return Unmatched
	case c.Denied:
		return Denied
	case !c.Choice.Made:
		return Late
	case c.Unreadable && c.Choice.Index == c.Index:
		return Taken
	case c.Unreadable:
		return Unmatched
	case c.Choice.Unreadable || !c.Choice.Parameters.Equal(c.Parameters):
		return Outranked
	case c.Holds && c.prefersHeld():
		return Contested
	default:
		// A second one with the same parameters is a fault, which is not found here.
		return Taken
	}
}

// prefersHeld reports whether the subscription prefers the variant that it has.
func (c *Case) prefersHeld() bool {
	return c.Constraints.Choose([]dynparam.Parameters{c.Parameters, c.Held}).Index == 1
}

// Question is how a subscription stands that was contested.
type Question struct {
	// Open says that the server is asked whether it still has the variant in use.
	Open bool
	// Confirmed is how often in a row it then had it.
	Confirmed int
}

// MaxConfirmed bounds how often in a row answers to questions about others are reason enough to
// ask again. A server that answers each question by itself could be asked for ever by two
// subscriptions that match what the other one prefers.
const MaxConfirmed = 4

// Settle decides a contested case. answer says that the resource may be the answer to such a
// question about another subscription.
//
// The response has something new for some subscription, perhaps one that the client has ended since, and this one may only
// match the resource as well; or the server has sent it because of this one, which has lost the variant that it
// prefers. So the server is asked, and its answer counts. If the resource may be the answer to a question about
// another one, the asking ends with MaxConfirmed:
//
//	a{shard=0-5} has shard=5            server sends shard=3, which a{shard=0-3} was waiting for
//	client asks again for a{shard=0-5}  server sends shard=5 again: Confirmed is 1
func (q Question) Settle(answer bool) (Outcome, Question) {
	if answer && q.Confirmed == MaxConfirmed {
		return Kept, q
	}
	q.Open = true
	return KeptAsking, q
}

// Answered returns the question after the subscription has taken a resource. same says that it
// is the variant that it had, and pending that the server was asked and had not answered.
func (q Question) Answered(same, pending bool) Question {
	switch {
	case !same:
		return Question{}
	case pending && q.Open:
		return Question{Confirmed: min(q.Confirmed+1, MaxConfirmed)}
	default:
		return q
	}
}
