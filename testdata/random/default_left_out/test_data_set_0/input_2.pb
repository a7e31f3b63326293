Bc17JI
ӿ!UC?