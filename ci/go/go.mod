module example.com/service-tests

go 1.21
