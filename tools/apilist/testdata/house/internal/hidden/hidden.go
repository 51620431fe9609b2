package hidden

type Key int
