package xdsclient

import (
	"fmt"
	"slices"
	"strings"
)

// checkServer is what the modelled server knows of a stream.
type checkServer struct {
	// begun says that it has read a request for a type.
	begun [checkKinds]bool
	// subs has the locators that the client is subscribed to as far as the server has read, as bits.
	subs uint
	// nonce is that of the last response for a type, and version its version.
	nonce   [checkKinds]uint32
	version [checkKinds]string
	// told is what it has told of each locator, and members what of each member of a collection.
	told    [maxCheckLocators]checkValue
	members [maxCheckLocators][maxCheckItems]checkValue
	// whole has the collections that the first request of a stream subscribed to without claims, after an earlier stream, as bits:
	// the first response for one of them has all of its members.
	whole uint
	// denied says that it has sent a denial of all subscriptions to a name since client and server were both silent.
	denied bool
	// behind says for a type that a SotW server has ignored a list that differs from the one that it goes by, as the request
	// was stale, and since is the response that the first such request answered.
	behind [checkKinds]bool
	since  [checkKinds]uint32
}

// checkMemory is what a SotW server knows of a client from an earlier stream: what it acknowledged.
type checkMemory struct {
	version string
	told    [maxCheckLocators]checkValue
}

// checkRequest is a request on its way.
type checkRequest struct {
	kind    int
	nonce   uint32
	version string
	// subs are what it lists or subscribes to, and leaves what it unsubscribes from, as bits.
	subs, leaves uint
	// nack says that it rejects a response.
	nack bool
	// claims are the versions that the client says it has.
	claims []checkValue
}

// checkResponse is a response on its way.
type checkResponse struct {
	kind    int
	nonce   uint32
	version string
	words   string
	// selects is the locator that the client is moved to, plus one, in a response with DPDS.
	selects int
	// there has the locators for which the server had a resource when it sent the response, and denied those
	// for which it had an error; members has the members that it had of each collection. All are bits.
	there, denied uint
	// faulty has the locators that match a resource of the response that cannot be decoded.
	faulty  uint
	members [maxCheckLocators]uint
}

// checkTold is what a response tells of a locator, or, if item is not negative, of a member of it.
type checkTold struct {
	locator, item int
	value         checkValue
}

// checkAnswer is a response that the server may send.
type checkAnswer struct {
	kind  int
	words []string
	told  []checkTold
	// items has the resources in it, as bits, unless it has the full state.
	items uint
	// spare says that the server has no reason for it.
	spare bool
	// selects says that it is the DPDS resource.
	selects bool
}

// read has the server read a request. It ignores one that answers an older response than its last one, unless it
// obeys stale requests.
func (x *trial) read(r *checkRequest) {
	s, memory := &x.server, &x.memory[r.kind]
	defer func() { s.begun[r.kind] = true }()
	nonce, all := s.nonce[r.kind], x.way.ofKind(r.kind)
	if !x.way.delta {
		if nonce != r.nonce && !x.way.obeysStale && !(x.way.obeysEmpty && r.nonce == 0) {
			if r.subs != s.subs&all && !s.behind[r.kind] {
				s.behind[r.kind], s.since[r.kind] = true, r.nonce
			}
			return
		}
		s.behind[r.kind] = false
		if nonce != 0 && nonce == r.nonce && r.version == s.version[r.kind] {
			*memory = checkMemory{version: r.version}
			for l := range x.way.locators_ {
				if s.subs&all&(1<<l) != 0 {
					memory.told[l] = s.told[l]
				}
			}
		}
		for l := range x.way.locators_ {
			if all&^r.subs&(1<<l) != 0 {
				s.told[l] = checkUnsaid
			} else if all&(1<<l) != 0 && !s.begun[r.kind] && r.version != "" && r.version == memory.version {
				s.told[l] = memory.told[l]
			}
		}
		s.subs = s.subs&^all | r.subs
		return
	}
	for l := range x.way.locators_ {
		if !s.begun[r.kind] && x.used.breaks > 0 && x.way.locators_[l].collection && !x.claimsMember(r, l) {
			s.whole |= r.subs & (1 << l)
		}
		if (r.subs|r.leaves)&(1<<l) != 0 {
			s.told[l] = checkUnsaid
			for i, had := range s.members[l] { // the client may have taken it for an answer to what it asks for now
				if had >= checkFirst {
					s.members[l][i] = checkValueOf(i, checkDenied)
				}
			}
		}
		if r.subs&(1<<l) == 0 {
			continue
		}
		for _, v := range r.claims {
			switch it := &x.way.things[v.item()]; {
			case it.singles&(1<<l) != 0:
				s.told[l] = v
			case it.collections&(1<<l) != 0:
				s.members[l][v.item()] = v
			}
		}
	}
	s.subs = s.subs&^r.leaves | r.subs
	// Who unsubscribes from a name that is in a collection is told what becomes of it (Envoy, xDS protocol,
	// "Unsubscribing From Resources").
	for i := range x.way.things {
		it := &x.way.things[i]
		if r.leaves&it.singles == 0 {
			continue
		}
		for l := range x.way.locators_ {
			if s.subs&it.collections&(1<<l) != 0 {
				s.members[l][i] = checkValueOf(i, checkDenied)
			}
		}
	}
}

// claimsMember reports whether a request claims a member of a collection.
func (x *trial) claimsMember(r *checkRequest, l int) bool {
	return slices.ContainsFunc(r.claims, func(v checkValue) bool { return x.way.things[v.item()].collections&(1<<l) != 0 })
}

// maxBehind is how many responses there may be after the one that a SotW request answers until the server goes by the list of
// that request, or of a later one.
const maxBehind = 4

// isTooFarBehind reports whether the server has to read before it sends another response.
func (x *trial) isTooFarBehind(kind int) bool {
	s := &x.server
	if x.way.delta {
		return false
	}
	if s.behind[kind] {
		return s.nonce[kind] >= s.since[kind]+maxBehind
	}
	for _, r := range x.up {
		if r.kind == kind && r.subs != s.subs&x.way.ofKind(kind) {
			return s.nonce[kind] >= r.nonce+maxBehind
		}
	}
	return false
}

// answers returns the responses that the server may send.
func (x *trial) answers() (list []checkAnswer) {
	for kind := range checkKinds {
		list = append(list, x.answersOf(kind)...)
	}
	return list
}

// answersOf returns those for a type. The first one, unless it is spare, tells all that the server has to tell.
func (x *trial) answersOf(kind int) (list []checkAnswer) {
	x.kind = kind
	switch {
	case !x.server.begun[kind]:
		return nil
	case x.way.moves && x.selected != x.sentSelected:
		return []checkAnswer{{selects: true}}
	case x.server.subs&x.way.ofKind(kind) == 0, x.isTooFarBehind(kind):
		return nil
	case x.way.delta:
		list = x.deltaAnswers()
	case x.way.full && kind == 0:
		list = x.fullAnswers()
	default:
		list = x.partialAnswers()
	}
	for i := range list {
		list[i].kind = kind
	}
	return list
}

func (x *trial) subscribed(f func(l int, want checkValue)) {
	for l := range x.way.locators_ {
		if x.server.subs&x.way.ofKind(x.kind)&(1<<l) != 0 {
			f(l, x.world.of(x.way, l))
		}
	}
}

// resource is the word of a resource.
func (x *trial) resource(item int) string {
	it, text := &x.way.things[item], x.way.text(item, x.world[item])
	mark := "="
	if x.world[item] == checkFaulty {
		mark = "!"
	}
	if x.way.delta || x.way.heartbeats || x.way.lapses {
		return it.text + "@" + text + mark + text
	}
	return it.text + mark + text
}

// heartbeat is the word that says that there still is the version of a resource.
func (x *trial) heartbeat(item int) string {
	return x.way.things[item].text + "@" + x.way.text(item, x.world[item]) + "~"
}

// scoped is the word for a locator in an error or removal.
func (x *trial) scoped(l int) string {
	text := x.way.locators_[l].text
	if x.way.locators && !strings.Contains(text, "{") {
		text += "{}"
	}
	return text
}

// fullAnswers returns the responses with the full state: without errors for what there is not, and with.
func (x *trial) fullAnswers() []checkAnswer {
	var plain, errors []string
	var told []checkTold
	due, news := false, false
	x.subscribed(func(l int, want checkValue) {
		had := x.server.told[l]
		told = append(told, checkTold{l, -1, want})
		switch {
		case want.isSent():
			plain = append(plain, x.resource(want.item()))
			due = due || had != want
		case want == checkNothing:
			due = due || had.isSent()
			if had != want {
				errors = append(errors, x.scoped(l)+"?NotFound")
			}
		case had != want:
			due = true
			plain = append(plain, x.scoped(l)+"?PermissionDenied")
		}
		news = news || had != want
	})
	slices.Sort(plain)
	plain = slices.Compact(plain)
	list := []checkAnswer{{words: plain, told: told, spare: !due}}
	if len(errors) > 0 {
		list = append(list, checkAnswer{words: slices.Concat(plain, errors), told: told, spare: !news})
	}
	return append(list, x.unscoped(list[0])...)
}

// unscoped returns an answer with errors and removals of a name in place of those of each locator, if that is
// possible and different: a server may name no constraints if it means all subscriptions that it knows.
func (x *trial) unscoped(a checkAnswer) []checkAnswer {
	if !x.way.locators || x.way.moves || x.way.scope.scoped || a.spare || x.hasDenied() {
		return nil
	}
	changed := false
	words := slices.Clone(a.words)
	for i, word := range words {
		rest, removed := strings.CutPrefix(word, "-")
		name, rest, ok := strings.Cut(rest, "{")
		_, code, isError := strings.Cut(rest, "}?")
		if !ok || !removed && !isError {
			continue
		}
		same := true
		var all string
		x.subscribed(func(l int, want checkValue) {
			if x.way.locators_[l].text != name && !strings.HasPrefix(x.way.locators_[l].text, name+"{") {
				return
			}
			if all = x.scoped(l) + "?" + code; removed {
				all = "-" + x.scoped(l)
			}
			same = same && slices.Contains(a.words, all)
		})
		// If it is for a member, there must be no other variant that a subscription may have, else none that is a member.
		ofMember := !isError && slices.ContainsFunc(x.way.things, func(it checkItem) bool { return "-"+it.text == word })
		for i := range x.way.things {
			there := x.world[i] != checkAbsent && strings.HasPrefix(x.way.things[i].text, name+"{")
			same = same && !(there && (ofMember || x.server.subs&x.way.things[i].collections != 0))
		}
		if !same {
			continue
		}
		changed = true
		if words[i] = name + "{*}?" + code; removed {
			words[i] = "-" + name + "{*}"
		}
	}
	if !changed {
		return nil
	}
	slices.Sort(words)
	return []checkAnswer{{words: slices.Compact(words), told: a.told, spare: a.spare}}
}

// hasDenied reports whether the server has sent a denial of all subscriptions to a name since client and server were both
// silent.
func (x *trial) hasDenied() bool {
	if len(x.up) == 0 && len(x.down) == 0 && !x.dirty && x.server.behind == [checkKinds]bool{} {
		x.server.denied = false
	}
	return x.server.denied
}

// say adds to an answer what there is for a locator.
func (x *trial) say(a *checkAnswer, l int) {
	want := x.world.of(x.way, l)
	switch {
	case want.isSent():
		x.sayItem(a, want.item(), l)
		return
	case want != checkNothing:
		a.words = append(a.words, x.scoped(l)+"?PermissionDenied")
	case x.way.delta && x.way.locators:
		a.words = append(a.words, "-"+x.scoped(l))
	case x.way.delta:
		a.words = append(a.words, "-"+x.way.locators_[l].text)
	default:
		a.words = append(a.words, x.scoped(l)+"?NotFound")
	}
	a.told = append(a.told, checkTold{l, -1, want})
}

// sayItem adds a resource. It is for all whose choice it is, and, with variantsRepeat, those that match and
// have another get theirs.
func (x *trial) sayItem(a *checkAnswer, item, unless int) {
	word := x.resource(item)
	if slices.Contains(a.words, word) {
		return
	}
	a.words, a.items = append(a.words, word), a.items|1<<item
	x.subscribed(func(l int, want checkValue) {
		switch {
		case x.way.locators_[l].collection:
			if v := x.world.member(x.way, l, item); v.isThere() {
				a.told = append(a.told, checkTold{l, item, v}, checkTold{l, -1, checkFirst})
			}
		case want.isSent() && want.item() == item:
			a.told = append(a.told, checkTold{l, -1, want})
		case want.content() == checkDenied && x.way.things[item].singles&(1<<l) != 0:
			if word := x.scoped(l) + "?PermissionDenied"; !slices.Contains(a.words, word) {
				a.words, a.told = append(a.words, word), append(a.told, checkTold{l, -1, want})
			}
		case x.way.variantsRepeat && l != unless && want.isSent() && x.way.things[item].singles&(1<<l) != 0:
			x.sayItem(a, want.item(), l)
		}
	})
}

// partialAnswers returns the SotW responses of a type without full state.
func (x *trial) partialAnswers() []checkAnswer { return x.changes(nil) }

// deltaAnswers returns the delta responses.
func (x *trial) deltaAnswers() []checkAnswer { return x.changes(x.collectionChanges) }

// changes returns the responses with all that is new, and each alone, and spare ones that repeat one.
func (x *trial) changes(more func(all *checkAnswer) (each []checkAnswer)) (list []checkAnswer) {
	var all checkAnswer
	var each []checkAnswer
	x.subscribed(func(l int, want checkValue) {
		if x.way.locators_[l].collection {
			return
		}
		one := checkAnswer{}
		x.say(&one, l)
		one.spare = x.server.told[l] == want
		each = append(each, one)
		if !one.spare {
			x.say(&all, l)
		} else if x.way.heartbeats && want.isSent() {
			each = append(each, checkAnswer{words: []string{x.heartbeat(want.item())}, spare: true})
		}
	})
	if more != nil {
		each = append(each, more(&all)...)
	}
	if len(all.words) == 0 {
		all.spare = true
	} else {
		list = append(list, all)
		list = append(list, x.unscoped(all)...)
	}
	list = append(list, x.emptyAnswers()...)
	for l := range x.way.locators_ { // the first answer for a collection by locators, or without claims, has all members
		whole := x.way.locators && x.way.locators_[l].collection || x.server.whole&(1<<l) != 0
		if whole && x.server.subs&(1<<l) != 0 && x.server.told[l] == checkUnsaid {
			return list
		}
	}
	for _, a := range each {
		for _, a := range append(x.unscoped(a), a) {
			if !slices.ContainsFunc(list, func(b checkAnswer) bool { return slices.Equal(a.words, b.words) }) {
				list = append(list, a)
			}
		}
	}
	return list
}

// emptyAnswers returns the response that answers for a wildcard without members of which the server has to say nothing.
func (x *trial) emptyAnswers() (list []checkAnswer) {
	x.subscribed(func(l int, _ checkValue) {
		said := x.way.locators_[l].name != wildcard || x.server.told[l] != checkUnsaid
		for i := range x.way.things {
			said = said || x.world.member(x.way, l, i) != checkNothing || x.server.members[l][i] >= checkFirst
		}
		if !said {
			list = append(list, checkAnswer{told: []checkTold{{l, -1, checkNothing}}})
		}
	})
	return list
}

// collectionChanges adds what is new of collections.
func (x *trial) collectionChanges(all *checkAnswer) (each []checkAnswer) {
	add := func(a checkAnswer) {
		each = append(each, a)
		all.told, all.items = append(all.told, a.told...), all.items|a.items
		for _, w := range a.words {
			if !slices.Contains(all.words, w) {
				all.words = append(all.words, w)
			}
		}
	}
	x.subscribed(func(l int, _ checkValue) {
		loc := &x.way.locators_[l]
		if !loc.collection {
			return
		}
		empty := true
		for i := range x.way.things {
			want, had := x.world.member(x.way, l, i), x.server.members[l][i]
			empty = empty && want == checkNothing
			switch {
			case want == had || want == checkNothing && had == checkUnsaid:
			case want.isThere():
				one := checkAnswer{}
				x.sayItem(&one, i, l)
				add(one)
			default:
				text := x.way.things[i].text
				one := checkAnswer{words: []string{"-" + text}, told: []checkTold{{l, i, want}}}
				x.subscribed(func(other int, want checkValue) {
					if !x.way.locators && x.way.locators_[other].name == x.way.things[i].name {
						one.told = append(one.told, checkTold{other, -1, checkNothing})
					}
				})
				add(one)
			}
		}
		if empty && loc.name != wildcard && x.server.told[l] == checkUnsaid {
			none := checkAnswer{words: []string{"-" + x.scoped(l)}, told: []checkTold{{l, -1, checkNothing}}}
			for i, had := range x.server.members[l] {
				if had >= checkFirst {
					none.told = append(none.told, checkTold{l, i, checkNothing})
				}
			}
			add(none)
		}
	})
	return each
}

// send has the server send an answer.
func (x *trial) send(a *checkAnswer) {
	if a.selects {
		x.sentSelected = x.selected
		x.down = append(x.down, &checkResponse{selects: x.selected + 1})
		return
	}
	s := &x.server
	s.nonce[a.kind]++
	r := &checkResponse{kind: a.kind, nonce: s.nonce[a.kind], version: x.worldVersion(), words: strings.Join(a.words, " ")}
	for l := range x.way.locators_ {
		want := x.world.of(x.way, l)
		switch {
		case want.isThere():
			r.there |= 1 << l
		case want.content() == checkDenied:
			r.denied |= 1 << l
		}
		for i := range x.way.things {
			if x.world.member(x.way, l, i).isThere() {
				r.members[l] |= 1 << i
			}
		}
	}
	for _, t := range a.told {
		if t.item < 0 {
			s.told[t.locator] = t.value
		} else {
			s.members[t.locator][t.item] = t.value
		}
	}
	if x.way.delta {
		x.tellOthers(a)
	}
	s.denied = s.denied || strings.Contains(r.words, "{*}")
	if !x.way.delta && (!x.way.full || a.kind == 1) {
		r.version += fmt.Sprint(s.told[:len(x.way.locators_)]) // a part of what is new is a version of its own
	}
	for _, word := range a.words {
		if item, _, ok := strings.Cut(word, "!"); ok {
			for i := range x.way.things {
				if text, _, _ := strings.Cut(item, "@"); text == x.way.things[i].text {
					r.faulty |= x.way.things[i].singles
				}
			}
		}
	}
	s.version[a.kind] = r.version
	x.down = append(x.down, r)
}

// tellOthers notes what an answer says beside what it is for: a resource that comes for a collection is also for a subscription
// that it matches and that has nothing, and the removal of a name from a subscription is one from collections, too.
func (x *trial) tellOthers(a *checkAnswer) {
	s := &x.server
	for i := range x.way.things {
		it := &x.way.things[i]
		for l := range x.way.locators_ {
			switch {
			case it.singles&s.subs&(1<<l) == 0:
			case a.items&(1<<i) != 0 && s.told[l] < checkFirst:
				s.told[l] = checkValueOf(i, x.world[i])
			case slices.Contains(a.told, checkTold{l, -1, checkNothing}):
				for c := range x.way.locators_ {
					if it.collections&(1<<c) != 0 && s.members[c][i].isThere() {
						s.members[c][i] = checkValueOf(i, checkDenied)
					}
				}
			}
		}
	}
}

// worldVersion is the version of all that there is.
func (x *trial) worldVersion() string {
	return fmt.Sprintf("w%d%d%d%d", x.world[0], x.world[1], x.world[2], x.world[3])
}
