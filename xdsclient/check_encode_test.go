package xdsclient

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"hash/maphash"
	"reflect"
	"slices"
	"strconv"
	"time"

	"github.com/dynxds/dynxds/xdsclient/bootstrap"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

// stateEncoder writes the state of a trial in a form that is the same for two states that behave alike: pointers
// are numbered in the order in which they are met, and of counters only the order among those of the same
// kind counts.
type stateEncoder struct {
	b    []byte
	seen map[uintptr]int
	// ranked has the counters by kind: where their rank is to be written, and their value.
	ranked [rankKinds][]rankedNumber
}

type rankedNumber struct {
	at    int
	value uint64
}

// rankKind is what counters are compared with.
type rankKind int

const (
	// rankResponse numbers the responses of a channel, rankOfType those of a type on a stream, rankRequest
	// requests, rankNonce nonces, and rankDeadline the deadlines of resource timers.
	rankResponse rankKind = iota
	rankOfType
	rankRequest
	rankNonce
	rankDeadline
	rankKinds
)

// rankedFields are the counters, by type and field. Those in maps are of the kind of their field.
var rankedFields = map[string]rankKind{
	"Progress.asked": rankResponse, "Progress.Seen": rankResponse, "Progress.ignoredDenialIn": rankResponse,
	"crossings.lastResponse": rankResponse, "serverChannel.responses": rankResponse,
	"offer.response": rankResponse, "offer.retracted": rankResponse, "offer.denied": rankResponse,
	"Requests[*].responses": rankOfType, "Progress.older": rankOfType,
	"Progress.request": rankRequest, "crossings.number": rankRequest, "crossings.read": rankRequest,
	"unsubscription.request": rankRequest, "unsubscription.responses": rankOfType, "Progress.listed": rankOfType,
	"Replies.nonce": rankNonce, "Reply.Nonce": rankNonce,
	"subscription.deadline": rankDeadline, "expecting.deadline": rankDeadline,
}

// unencodedFields do not change what a client does, or are of no use in a check: caches of what can be found
// otherwise, statistics, and times.
var unencodedFields = map[string]bool{
	"XDSClient": true, "serverChannel.client": true, "serverChannel.server": true, "serverChannel.loads": true,
	"serverChannel.stream": true, "serverChannel.protocol": true, "serverChannel.finds": true, "serverChannel.ignored": true,
	"serverChannel.levels": true, "serverChannel.saidSoon": true, "serverChannel.sending": true,
	"typeState.channel": true, "typeState.typ": true, "typeState.last": true, "typeState.byHash": true,
	"Requests[*].typeURL": true, "Requests[*].subs": true, "Requests[*].Limit": true, "Requests[*].began": true,
	"Replies.sent": true, "Replies.backlog": true, "Repetition.hash": false,
	"subscription.after": true, "subscription.found": true,
	"resource.level": true, "resource.saidIgnored": true, "authority.client": true, "authority.wait": true,
	"level.server": true, "level.authority": true,
	"payload.value": true, "payload.server": true, "stamp.at": true,
	"Error.Server": true, "Error.NodeID": true, "Error.stamp": true, "Error.TypeName": true, "Error.status": true,
	"watch.watcher": true, "watch.ofTarget": true, "watch.called": true, "targetWatches.authority": true, "targetWatches.level": true,
	"queuedOfMembers.watcher": true, "expiry.fire": true, "expiry.timer": true, "expiry.stopwatch": true, "expiry.timeout": true,
	"Link.opened": true, "Link.failure": false,
}

var (
	timeType        = reflect.TypeFor[time.Time]()
	constraintsType = reflect.TypeFor[dynparam.Constraints]()
	parametersType  = reflect.TypeFor[dynparam.Parameters]()
	serverType      = reflect.TypeFor[*bootstrap.Server]()
	typeType        = reflect.TypeFor[*ResourceType]()
	errorType       = reflect.TypeFor[error]()
)

// encodedFields is what is encoded of a struct type.
type encodedFields []encodedField

type encodedField struct {
	index int
	kind  rankKind // or -1
}

var fieldsOfTypes = make(map[reflect.Type]encodedFields)

func fieldsOf(t reflect.Type) encodedFields {
	if f, ok := fieldsOfTypes[t]; ok {
		return f
	}
	name := t.Name()
	if at := bytes.IndexByte([]byte(name), '['); at >= 0 {
		name = name[:at] + "[*]"
	}
	var fields encodedFields
	for i := range t.NumField() {
		full := name + "." + t.Field(i).Name
		if unencodedFields[full] || unencodedFields[name] {
			continue
		}
		kind, ranked := rankedFields[full]
		if !ranked {
			kind = -1
		}
		fields = append(fields, encodedField{i, kind})
	}
	fieldsOfTypes[t] = fields
	return fields
}

// stateHash returns a hash of the canonical form of a trial's state.
func (x *trial) stateHash(e *stateEncoder) [2]uint64 {
	e.b, e.seen = e.b[:0], make(map[uintptr]int)
	for i := range e.ranked {
		e.ranked[i] = e.ranked[i][:0]
	}
	x.encodeModel(e)
	x.c.mu.Lock()
	for _, ts := range x.ch.types { // the subscriptions first, in an order that does not depend on maps
		e.value(reflect.ValueOf(ts.subs), -1)
		e.value(reflect.ValueOf(ts), -1)
	}
	e.value(reflect.ValueOf(x.ch), -1)
	e.value(reflect.ValueOf(x.c.authorities), -1)
	x.c.mu.Unlock()
	for kind, list := range e.ranked {
		if rankKind(kind) == rankOfType {
			e.writeDistances(list)
		} else {
			e.writeRanks(list)
		}
	}
	return [2]uint64{maphash.Bytes(checkSeed, e.b), maphash.Bytes(secondSeed, e.b)}
}

var secondSeed = maphash.MakeSeed()

func (e *stateEncoder) writeRanks(list []rankedNumber) {
	values := make([]uint64, 0, len(list)+1)
	values = append(values, 0)
	for _, n := range list {
		values = append(values, n.value)
	}
	slices.Sort(values)
	values = slices.Compact(values)
	for _, n := range list {
		rank, _ := slices.BinarySearch(values, n.value)
		e.b[n.at] = byte(rank)
	}
}

// writeDistances writes how far counters are from the largest, up to a bound: the client compares these with
// maxCrossings.
func (e *stateEncoder) writeDistances(list []rankedNumber) {
	largest := uint64(0)
	for _, n := range list {
		largest = max(largest, n.value)
	}
	for _, n := range list {
		e.b[n.at] = byte(min(largest-n.value, 8))
	}
}

func (e *stateEncoder) byte(b byte)     { e.b = append(e.b, b) }
func (e *stateEncoder) number(n uint64) { e.b = binary.AppendUvarint(e.b, n) }
func (e *stateEncoder) text(s string)   { e.number(uint64(len(s))); e.b = append(e.b, s...) }
func (e *stateEncoder) rank(kind rankKind, n uint64) {
	e.ranked[kind] = append(e.ranked[kind], rankedNumber{len(e.b), n})
	e.b = append(e.b, 0)
}

// encodeModel encodes the server, what is under way, and what the watches have.
func (x *trial) encodeModel(e *stateEncoder) {
	e.b = append(e.b, x.world[:]...)
	for _, n := range []int{x.used.user, x.used.world, x.used.breaks, x.used.extra, x.used.timers} {
		e.byte(byte(n))
	}
	for _, w := range x.watches {
		if w == nil {
			e.byte(255)
			continue
		}
		e.byte(byte(w.value))
		for _, v := range w.members {
			e.byte(byte(v))
		}
	}
	s := &x.server
	e.byte(byte(s.subs))
	if s.begun {
		e.byte(1)
	}
	e.rank(rankNonce, uint64(s.nonce))
	for l := range x.way.locators_ {
		e.byte(byte(s.told[l]))
		e.byte(byte(x.memory.told[l]))
		for i := range x.way.things {
			e.byte(byte(s.members[l][i]))
		}
	}
	e.text(x.memory.version)
	e.text(x.sentVersion)
	e.byte(byte(len(x.up)))
	for _, r := range x.up {
		e.rank(rankNonce, uint64(r.nonce))
		e.byte(byte(r.subs))
		e.byte(byte(r.leaves))
		e.text(r.version)
		for _, v := range r.claims {
			e.byte(byte(v))
		}
		e.byte(0)
	}
	e.byte(byte(len(x.down)))
	for _, r := range x.down {
		e.response(r)
	}
	if x.way.scope.timers > 0 && x.lastRead != nil {
		e.byte(byte(x.lastRead.there))
	}
}

func (e *stateEncoder) response(r *checkResponse) {
	e.rank(rankNonce, uint64(r.nonce))
	e.text(r.version)
	e.text(r.words)
	e.byte(byte(r.there))
	e.byte(byte(r.denied))
	for _, m := range r.members {
		e.byte(byte(m))
	}
}

// value encodes a value, whose counters are of a kind if that is not negative.
func (e *stateEncoder) value(v reflect.Value, kind rankKind) {
	if kind >= 0 && e.counter(v, kind) {
		return
	}
	switch v.Kind() {
	case reflect.Bool:
		if v.Bool() {
			e.byte(1)
		} else {
			e.byte(0)
		}
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		e.number(uint64(v.Int()))
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		e.number(v.Uint())
	case reflect.String:
		e.text(v.String())
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			e.text(string(v.Bytes()))
			return
		}
		fallthrough
	case reflect.Array:
		e.number(uint64(v.Len()))
		for i := range v.Len() {
			e.value(v.Index(i), kind)
		}
	case reflect.Map:
		e.mapping(v, kind)
	case reflect.Pointer:
		e.pointer(v)
	case reflect.Interface:
		e.interfaced(v)
	case reflect.Struct:
		e.structure(v)
	case reflect.Func, reflect.Chan, reflect.UnsafePointer:
		if v.IsNil() {
			e.byte(0)
		} else {
			e.byte(1)
		}
	default:
		panic("a state has a " + v.Kind().String())
	}
}

// counter encodes a number, or a text that is one.
func (e *stateEncoder) counter(v reflect.Value, kind rankKind) bool {
	switch v.Kind() {
	case reflect.Int, reflect.Int64:
		e.rank(kind, uint64(v.Int()))
	case reflect.Uint, reflect.Uint64:
		e.rank(kind, v.Uint())
	case reflect.String:
		n, _ := strconv.Atoi(v.String())
		e.rank(kind, uint64(n))
	default:
		return false
	}
	return true
}

func (e *stateEncoder) structure(v reflect.Value) {
	switch v.Type() {
	case timeType:
		if v.IsZero() {
			e.byte(0)
		} else {
			e.byte(1)
		}
		return
	case constraintsType, parametersType:
		// Their serialized form is their first text.
		e.text(keyOfDynamic(v))
		return
	}
	for _, f := range fieldsOf(v.Type()) {
		e.value(v.Field(f.index), f.kind)
	}
}

func (e *stateEncoder) pointer(v reflect.Value) {
	if v.IsNil() {
		e.byte(0)
		return
	}
	if t := v.Type(); t == serverType || t == typeType {
		e.byte(1)
		return
	}
	at := v.Pointer()
	if n, ok := e.seen[at]; ok {
		e.byte(2)
		e.number(uint64(n))
		return
	}
	e.seen[at] = len(e.seen)
	e.byte(3)
	e.value(v.Elem(), -1)
}

func (e *stateEncoder) interfaced(v reflect.Value) {
	switch {
	case v.IsNil():
		e.byte(0)
	case v.Type() == errorType:
		e.byte(1)
		e.text(v.Elem().Type().String())
	default:
		e.value(v.Elem(), -1)
	}
}

// mapping encodes a map in the order of its encoded keys.
func (e *stateEncoder) mapping(v reflect.Value, kind rankKind) {
	e.number(uint64(v.Len()))
	type entry struct {
		key   []byte
		value reflect.Value
	}
	var entries []entry
	for it := v.MapRange(); it.Next(); {
		start := len(e.b)
		e.value(it.Key(), -1)
		entries = append(entries, entry{bytes.Clone(e.b[start:]), it.Value()})
		e.b = e.b[:start]
	}
	slices.SortFunc(entries, func(a, b entry) int { return cmp.Or(bytes.Compare(a.key, b.key), 0) })
	for _, x := range entries {
		e.b = append(e.b, x.key...)
		e.value(x.value, kind)
	}
}

// keyOfDynamic returns what Key returns of constraints or parameters.
func keyOfDynamic(v reflect.Value) string {
	const wire = 1 // the field after the list
	if p := v.Field(0); !p.IsNil() {
		return p.Elem().Field(wire).String()
	}
	return ""
}
