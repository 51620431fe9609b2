package room

import "example.com/house/internal/hidden"

const Limit = 3

var Err error

type Door struct {
	Open bool
	key  hidden.Key
}

func (d *Door) Close() { d.Open = false }

func (d *Door) lock(k hidden.Key) { d.key = k }

func (d *Door) Lock(k hidden.Key) { d.lock(k) }

type window struct{}

func (window) Wash() {}

type Opener interface{ Keys() []hidden.Key }

type Key = hidden.Key

func New() *Door { return &Door{} }

func unused() {}
